// SPDX-License-Identifier: MIT OR Apache-2.0
//! A truth program that runs without debox, to be attached to; killed when dropped.

use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::program;
use crate::wait_for;

/// A running program.
#[derive(Debug)]
pub struct Background {
    child: Child,
}

impl Background {
    /// Starts a truth program.
    #[track_caller]
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { child }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its main thread is inside the call of this number, asleep.
    #[track_caller]
    pub fn await_call(&self, number: libc::c_long) {
        let path = format!("/proc/{}/syscall", self.pid());
        let inside = wait_for(Duration::from_secs(20), || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            text.split(' ').next() == Some(&number.to_string())
        });
        assert!(inside, "process {} never came to call {number}", self.pid());
    }

    /// Ends it and forgets it: its id is free then.
    pub fn end(mut self) -> u32 {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.pid()
    }

    /// True while it runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
