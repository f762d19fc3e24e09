// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path server for tests, and the adapters that ask it.

#[path = "build_adapters.rs"]
pub mod build_adapters;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that everybody may read, with an empty directory `root`.
pub fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.path(), open).expect("it is ours");
    fs::create_dir(place.path().join("root")).expect("room");
    place
}

/// `flash path-server`, ended with the value.
pub struct PathServer {
    child: Child,
    pub socket: PathBuf,
    metrics: String,
}

impl PathServer {
    /// Its root is `root` in the directory.
    pub fn start(place: &Path, options: &[&str]) -> PathServer {
        let socket = place.join("paths");
        let mut child = Command::new(env!("CARGO_BIN_EXE_flash"))
            .arg("path-server")
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .arg("--root")
            .arg(place.join("root"))
            .args(["--metrics", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("flash can be executed");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut next = || lines.next().expect("a line").expect("text");
        assert!(next().starts_with("answering at unix:"));
        let metrics = next();
        let metrics = metrics
            .strip_prefix("counters at http://")
            .expect("counters");
        let metrics = metrics
            .strip_suffix("/metrics")
            .expect("a path")
            .to_string();
        let sandbox = next();
        assert!(sandbox.contains("seccomp: on"), "{sandbox}");
        PathServer {
            child,
            socket,
            metrics,
        }
    }

    /// A counter, as Prometheus reads it.
    pub fn counter(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        let row = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("flash_path_{name} ")));
        row.unwrap_or_else(|| panic!("{page}"))
            .parse()
            .expect("a number")
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).expect("it runs");
    }

    /// Whether it has ended well after SIGTERM.
    pub fn end(mut self) -> bool {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.child.wait().expect("a child").success()
    }
}

impl Drop for PathServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
