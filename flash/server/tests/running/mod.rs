// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash serve` as a process, for tests of the whole server.

// No test needs all of it.
#![allow(dead_code, unused_imports)]

#[path = "../started/mod.rs"]
mod started;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, ExitStatus};

pub use started::{connect, get, wait_until, Started, FLASH, PATIENCE};

pub struct Running(Started);

impl Running {
    /// Starts it, and waits for the last line of what it says then.
    pub fn start(place: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(FLASH);
        command.arg("serve").arg(place.join("root")).args(arguments);
        Running(Started::begin(command))
    }

    pub fn get(&self, target: &str) -> String {
        ask(self.address(), target)
    }

    pub fn signal(&self, signal: &str) {
        self.0.signal_named(signal);
    }

    /// What the kernel says of each thread, by thread and name.
    pub fn threads(&self) -> Vec<BTreeMap<String, String>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
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
        self.0.end()
    }

    pub fn wait(self) -> (ExitStatus, String) {
        self.0.wait()
    }
}

impl Deref for Running {
    type Target = Started;

    fn deref(&self) -> &Started {
        &self.0
    }
}

pub fn ask(address: SocketAddr, target: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {target} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
