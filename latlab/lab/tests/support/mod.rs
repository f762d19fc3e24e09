//! Starts servers and runs `latlab`.

// Each test program uses only a part of this module.
#![allow(dead_code)]

pub mod schema;
pub mod slow_disk;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

pub const LATLAB: &str = env!("CARGO_BIN_EXE_latlab");

/// A process that is killed at the end of the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A programmed server, and its URL.
pub fn server(arguments: &[&str]) -> (Running, String) {
    let mut child = Command::new(LATLAB)
        .args(["server", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("latlab runs");
    let stdout = child.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line
        .trim()
        .strip_prefix("listening at ")
        .expect("an address");
    (Running(child), format!("http://{address}/"))
}

/// A port on which no process listens.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has one").port()
}

pub fn latlab(arguments: &[&str]) -> Output {
    Command::new(LATLAB)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("latlab runs")
}

/// Runs latlab, and returns its summary. These tests check what is measured, and share the machine
/// with others, so a late generator is no failure here.
pub fn run(url: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["run", url, "--format", "json", "--max-lateness", "1h"];
    all.extend(arguments);
    let output = latlab(&all);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn number(summary: &Value, pointer: &str) -> i64 {
    let value = summary.pointer(pointer);
    value
        .and_then(Value::as_i64)
        .unwrap_or_else(|| panic!("{pointer} in {summary:#}"))
}

/// How many requests failed in this way.
pub fn errors(summary: &Value, kind: &str) -> u64 {
    summary["errors"][kind].as_u64().unwrap_or(0)
}

/// A file set of one directory, with the servers' default seed.
pub fn files(place: &Path) -> String {
    let files = place.join("files").display().to_string();
    let made = latlab(&["fileset", "create", &files, "--size", "1M"]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    files
}

/// A directory with a file set, and a file that defines latlab's own programmed server.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub files: String,
    pub servers: String,
}

impl Place {
    /// `start`: the program and its arguments, as in such a file.
    pub fn new(start: &str) -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let files = files(directory.path());
        let servers = directory.path().join("servers.toml").display().to_string();
        let text = format!(
            "[[server]]\nname = 'programmed'\nstart = {start}\nparameters = {{ service = 'fixed:1ms' }}\n"
        );
        std::fs::write(&servers, text).expect("it can be written");
        Place {
            directory,
            files,
            servers,
        }
    }

    /// A place whose server has these faults.
    pub fn programmed(faults: &[&str]) -> Place {
        let mut words = vec![LATLAB, "server", "--listen", "127.0.0.1:{port}"];
        words.extend(["--service", "{service}"]);
        words.extend(faults);
        Place::new(&format!("{words:?}"))
    }

    /// A place whose server is a shell script.
    pub fn script(script: &str) -> Place {
        Place::new(&format!("['/bin/sh', '-c', {script:?}]"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = arguments.to_vec();
        all.extend(["--files", &self.files, "--servers", &self.servers]);
        all.extend(["--max-lateness", "1h"]);
        all
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        Command::new(LATLAB)
            .args(self.arguments(arguments))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("latlab runs")
    }

    /// A run, and the summary that it prints.
    pub fn run(&self, arguments: &[&str]) -> (Value, String) {
        let arguments = [&["run", "programmed", "--format", "json"], arguments].concat();
        let output = latlab(&self.arguments(&arguments));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
        let summary = serde_json::from_slice(&output.stdout).expect("JSON");
        (summary, stderr)
    }
}
