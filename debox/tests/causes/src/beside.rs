// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands beside a program and is not measured.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Roles of `programs/beside.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    SlowServer,
    SilentNameServer,
    LocksFile,
    LocksRecord,
    LocksDatabase,
    SlowReader,
    SlowWriter,
    SlowReceiver,
    SlowLog,
    Hogs,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::SlowServer => "slow_server",
            Role::SilentNameServer => "silent_name_server",
            Role::LocksFile => "locks_file",
            Role::LocksRecord => "locks_record",
            Role::LocksDatabase => "locks_database",
            Role::SlowReader => "slow_reader",
            Role::SlowWriter => "slow_writer",
            Role::SlowReceiver => "slow_receiver",
            Role::SlowLog => "slow_log",
            Role::Hogs => "hogs",
        }
    }
}

/// A process in a group of its own, which is killed with all its children when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// What it said after `ready`.
    pub said: String,
}

impl Process {
    /// Starts it and waits until it says that it is ready.
    pub fn start(mut command: Command) -> Result<Process, String> {
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        let mut process = Process {
            child,
            said: String::new(),
        };
        let mut out = BufReader::new(process.child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        let read = out.read_line(&mut line);
        process.child.stdout = Some(out.into_inner());
        match (read, line.trim().strip_prefix("ready")) {
            (Ok(_), Some(said)) => process.said = said.trim().to_string(),
            _ => return Err(format!("{command:?} said {line:?}")),
        }
        Ok(process)
    }

    /// Plays a role, with its files in this directory.
    pub fn beside(role: Role, directory: &Path) -> Result<Process, String> {
        let mut command = Command::new("python3");
        let script = Path::new(crate::PROGRAMS).join("beside.py");
        command.arg(script).arg(role.name()).arg(directory);
        Process::start(command)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: kill takes no memory; the child was not waited for, so that its group is still its own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}
