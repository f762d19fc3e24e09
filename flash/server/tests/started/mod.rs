// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash that has been started, for all helpers of tests: its process, what it says, its signals and counters.

// No test needs all of it.
#![allow(dead_code)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

pub const FLASH: &str = env!("CARGO_BIN_EXE_flash");
pub const PATIENCE: Duration = Duration::from_secs(30);

/// It ends with the value.
pub struct Started {
    pub child: Child,
    /// What it says when it has started.
    pub said: Vec<String>,
    errors: NamedTempFile,
    _out: BufReader<ChildStdout>,
}

impl Started {
    /// Starts a command that becomes flash, and waits for the last line of what it says then.
    #[track_caller]
    pub fn start(command: Command) -> Started {
        let it = Started::begin(command);
        let is_whole = it
            .said
            .last()
            .is_some_and(|line| line.starts_with("sandbox: "));
        assert!(is_whole, "it has ended: {}", it.errors());
        it
    }

    /// The same, but it may end.
    pub fn begin(mut command: Command) -> Started {
        let errors = NamedTempFile::new().expect("room");
        // It is read while flash still writes.
        let to = File::options().append(true).open(errors.path());
        let to = to.expect("it is there");
        let spawned = command.stdout(Stdio::piped()).stderr(to).spawn();
        let mut child = spawned.expect("it can be executed");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut it = Started {
            child,
            said: Vec::new(),
            errors,
            _out: out,
        };
        while !it
            .said
            .last()
            .is_some_and(|line| line.starts_with("sandbox: "))
        {
            let mut line = String::new();
            let length = it._out.read_line(&mut line).expect("text");
            if length == 0 {
                break;
            }
            it.said.push(line.trim().to_string());
        }
        it
    }

    /// The addresses of a kind of line.
    fn all(&self, before: &str) -> Vec<SocketAddr> {
        let lines = self
            .said
            .iter()
            .filter_map(|line| line.strip_prefix(before));
        lines
            .filter_map(|line| line.split('/').next()?.parse().ok())
            .collect()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all("serving at http://")
    }

    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        *self.addresses().first().expect("an address")
    }

    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        let all = self.all("serving at https://");
        *all.first().expect("an address")
    }

    #[track_caller]
    pub fn counters(&self) -> SocketAddr {
        *self.all("counters at http://").first().expect("an address")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// As the program `kill` names it: `-HUP`.
    pub fn signal_named(&self, name: &str) {
        let name = name.replacen('-', "SIG", 1);
        self.signal(name.parse().expect("a signal"));
    }

    /// The sum of a counter over its labels.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        let page = get(self.counters(), "/metrics");
        let rows = page.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let values: Vec<u64> = rows
            .map(|line| line.rsplit(' ').next().expect("a value"))
            .map(|value| value.parse().expect("a number"))
            .collect();
        assert!(!values.is_empty(), "{name} is not in\n{page}");
        values.iter().sum()
    }

    /// What it has said to standard error.
    pub fn errors(&self) -> String {
        fs::read_to_string(self.errors.path()).expect("text")
    }

    pub fn threads(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        tasks.count()
    }

    pub fn descriptors(&self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs");
        all.count()
    }

    /// Ends it, and returns what it has said to standard error.
    pub fn end(self) -> (ExitStatus, String) {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// It ends by itself, or has been asked to.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("a child");
        (status, self.errors())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something that another process does.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < PATIENCE,
            "in {PATIENCE:?} it never came to: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// The whole answer.
#[track_caller]
pub fn get(address: SocketAddr, target: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
