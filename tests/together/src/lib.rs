// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of several systems in one test: where they are, a disk that is slow, and a server under the guard.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use debox_tests::{debox_binary, require_root, wait_for};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that was built beside `debox`.
///
/// # Panics
///
/// It was not built.
pub fn program(name: &str) -> PathBuf {
    let path = debox_binary().with_file_name(name);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// A disk of latlab's with some files, mounted read-only. Each request to it takes `service`. It goes with the value.
pub struct SlowDisk {
    name: String,
    directory: tempfile::TempDir,
}

impl SlowDisk {
    /// # Panics
    ///
    /// The disk cannot be put up.
    pub fn up(service: &str, files: &[(String, Vec<u8>)]) -> SlowDisk {
        require_root();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let disk = SlowDisk {
            name: format!("together-{}-{number}", std::process::id()),
            directory: tempfile::tempdir().expect("a directory"),
        };
        let from = disk.directory.path().join("files");
        for (name, content) in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            fs::write(path, content).expect("room");
        }
        fs::create_dir(disk.root()).expect("room");
        let (from, root) = (from.into_os_string(), disk.root().into_os_string());
        let mut up = Command::new(program("latlab"));
        up.args(["disk", "up", &disk.name]);
        // Files that lie one behind the other would be read at once.
        up.args(["--service", service, "--sequential", service, "--from"]);
        up.arg(from).arg("--mount").arg(root);
        let done = up.output().expect("latlab can be executed");
        assert!(done.status.success(), "{}", said(&done));
        disk
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    fn control(&self, arguments: &[&str]) -> Output {
        let mut latlab = Command::new(program("latlab"));
        latlab.arg("disk").args(arguments);
        latlab.output().expect("latlab can be executed")
    }

    /// Forgets all that the kernel has in memory of it.
    ///
    /// # Panics
    ///
    /// The disk is in use.
    pub fn cool(&self) {
        let done = self.control(&["cool", &self.name]);
        assert!(done.status.success(), "{}", said(&done));
    }
}

impl SlowDisk {
    /// Does what a lack of memory does, while the disk is in use: of these files the bytes go that nobody has mapped, and
    /// of all names those that nobody has open.
    ///
    /// # Panics
    ///
    /// A command cannot be executed.
    pub fn forget(&self, names: impl Iterator<Item = String>) {
        let root = self.root();
        for name in names {
            let from = format!("if={}", root.join(name).display());
            run("dd", &["iflag=nocache", "count=0", "status=none", &from]);
        }
        let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
        let mut all = mounts.lines().map(|line| line.split(' '));
        let device = all.find_map(|mut words| {
            let device = words.next()?;
            (Path::new(words.next()?) == root).then(|| device.to_string())
        });
        let root = root.to_string_lossy();
        // A mount that is changed forgets names, and the device its directories.
        run("mount", &["-o", "remount,ro", &root]);
        run(
            "blockdev",
            &["--flushbufs", &device.expect("it is mounted")],
        );
    }
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program}: {}", said(&done));
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.control(&["down", &self.name, "--force"]);
    }
}

/// What a program wrote to standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server under the guard, ended with the test.
pub struct Guarded {
    pub guard: Child,
    result: PathBuf,
}

impl Guarded {
    /// `result`: a file for the verdict.
    ///
    /// # Panics
    ///
    /// `debox` was not built.
    pub fn start(result: &Path, command: &[&str]) -> Guarded {
        let result = result.to_path_buf();
        let guard = Command::new(debox_binary())
            .args(["guard", "--format", "json", "--for", "120s", "-o"])
            .arg(&result)
            .arg("--")
            .args(command)
            .stdout(Stdio::piped())
            .spawn()
            .expect("debox can be executed");
        Guarded { guard, result }
    }

    fn signal_server(&self, signal: &str) {
        let pid = self.guard.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let server = children.expect("the guard runs").trim().to_string();
        let done = Command::new("kill").args([signal, &server]).status();
        assert!(done.expect("kill can be executed").success(), "{server:?}");
    }

    /// Asks the server to end, and reads the verdict.
    ///
    /// # Panics
    ///
    /// There is no verdict.
    pub fn end(mut self) -> (ExitStatus, Value) {
        self.signal_server("-TERM");
        let status = self.guard.wait().expect("a child");
        let text = fs::read_to_string(&self.result).expect("a verdict");
        (status, serde_json::from_str(&text).expect("JSON"))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if matches!(self.guard.try_wait(), Ok(None)) {
            // The test has failed. Without its guard the server would live on.
            self.signal_server("-TERM");
            wait_for(PATIENCE, || !matches!(self.guard.try_wait(), Ok(None)));
        }
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}
