// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `flash` as a process, for tests of the whole server.

// No test needs all of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Running {
    pub child: Child,
    pub said: Vec<String>,
}

impl Running {
    /// Starts it, and waits for the last line of what it says then.
    pub fn start(place: &Path, arguments: &[&str]) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_flash"))
            .arg("serve")
            .arg(place.join("root"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be executed");
        let out = child.stdout.take().expect("a pipe");
        let mut said = Vec::new();
        for line in BufReader::new(out).lines() {
            said.push(line.expect("text"));
            if said
                .last()
                .is_some_and(|line| line.starts_with("sandbox: "))
            {
                break;
            }
        }
        Running { child, said }
    }

    pub fn address(&self) -> SocketAddr {
        let line = self.said.first().expect("it has started");
        let address = line.strip_prefix("serving at http://").expect("an address");
        address.trim_end_matches('/').parse().expect("an address")
    }

    pub fn get(&self, target: &str) -> String {
        ask(self.address(), target)
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args([signal, &pid]).status();
        assert!(done.expect("kill can be executed").success());
    }

    /// What the kernel says of each thread, by thread and name.
    pub fn threads(&self) -> Vec<BTreeMap<String, String>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let text = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
        let status = tasks.filter_map(|task| text(task.expect("a thread")));
        status
            .map(|text| {
                let pairs = text.lines().filter_map(|line| line.split_once(':'));
                let pairs = pairs.map(|(name, value)| (name.to_string(), value.trim().to_string()));
                pairs.collect()
            })
            .collect()
    }

    pub fn end(self) -> (ExitStatus, String) {
        self.signal("-TERM");
        self.wait()
    }

    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("a child");
        let mut text = String::new();
        let mut errors = self.child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut text).expect("text");
        (status, text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn ask(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET {target} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
