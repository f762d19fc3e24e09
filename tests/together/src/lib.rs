// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of several systems in one test: where they are, and a disk that is slow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use debox_tests::{debox_binary, require_root};

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

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.control(&["down", &self.name, "--force"]);
    }
}

/// What a program wrote to standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
