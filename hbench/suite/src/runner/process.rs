// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of one sample, as the runner sees it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::sampler::{Job, READY_LINE};
use crate::signals::interrupted;

/// A sample that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same under `debox`, which takes seconds to open, on an emulated machine minutes.
const PATIENCE_OBSERVED: Duration = Duration::from_secs(300);
/// A sample's output is a line.
const OUTPUT_MAX: usize = 1 << 16;
const LOOK: libc::c_int = 100;

pub struct Process {
    child: Child,
    output: Vec<u8>,
    is_at_end: bool,
    patience: Duration,
    deadline: Instant,
    errors: PathBuf,
}

/// There is no outcome, for this reason.
pub struct Ended {
    pub reason: String,
}

impl Process {
    /// Starts a sample. `errors`: the file for its standard error.
    pub fn sample(job: &Job, under: Option<&str>, errors: &Path) -> io::Result<Process> {
        let patience = match job.fixed {
            Some(_) => PATIENCE_OBSERVED,
            None => PATIENCE,
        };
        let words = ["sample".into(), serde_json::to_string(job)?.into()];
        Process::start(words, patience, under, errors)
    }

    /// Starts what says where samples run.
    pub fn describe(directory: &Path, under: &str, errors: &Path) -> io::Result<Process> {
        let words = ["describe".into(), directory.into()];
        Process::start(words, PATIENCE, Some(under), errors)
    }

    fn start(
        words: [OsString; 2],
        patience: Duration,
        under: Option<&str>,
        errors: &Path,
    ) -> io::Result<Process> {
        let own = std::env::current_exe()?;
        let mut command = match under {
            None => Command::new(own),
            Some(under) => {
                let mut shell = Command::new("/bin/sh");
                shell
                    .args(["-c", &format!("exec {under} \"$@\""), "hbench"])
                    .arg(own);
                shell
            }
        };
        let child = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(errors)?)
            // So that Ctrl-C reaches the runner alone, which ends the group.
            .process_group(0)
            .spawn()?;
        Ok(Process {
            child,
            output: Vec::new(),
            is_at_end: false,
            patience,
            deadline: Instant::now() + patience,
            errors: errors.to_path_buf(),
        })
    }

    /// Waits until the process says that it is ready to go on. `false`: it has its outcome, or has failed.
    pub fn wait_until_ready(&mut self) -> bool {
        while !self.output.contains(&b'\n') && self.read_some() {}
        let is_ready = self.output.starts_with(READY_LINE);
        if is_ready {
            self.output.drain(..READY_LINE.len());
        }
        is_ready
    }

    pub fn go_on(&mut self) {
        if let Some(input) = &mut self.child.stdin {
            // If it has ended, its outcome says why.
            let _ = input.write_all(b"go on\n");
        }
    }

    /// What it said last, once it has ended.
    pub fn finish<T: DeserializeOwned>(mut self) -> Result<T, Ended> {
        while self.read_some() {}
        let outcome = std::iter::from_fn(|| self.line())
            .filter_map(|line| serde_json::from_str(&line).ok())
            .last();
        let status = self.end(outcome.is_some());
        let status = match (outcome, status) {
            (Some(outcome), _) => return Ok(outcome),
            (None, Ok(status)) => status,
            (None, Err(error)) => {
                let reason = format!("its process cannot be waited for: {error}");
                return Err(Ended { reason });
            }
        };
        let reason = match self.is_at_end {
            true => how_it_ended(status),
            false => format!(
                "its process did not end within {} s",
                self.patience.as_secs()
            ),
        };
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let said = said.lines().rev().find(|line| !line.trim().is_empty());
        Err(Ended {
            reason: match said {
                Some(said) => format!("{reason}: {said}"),
                None => reason,
            },
        })
    }

    /// Ends what is left of the process and its children. Without an outcome, its own end says what happened.
    fn end(&mut self, has_outcome: bool) -> io::Result<ExitStatus> {
        if has_outcome || !self.is_at_end {
            // SAFETY: the group is the child's, which has not been waited for.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        }
        self.child.wait()
    }

    /// The first whole line of the output.
    fn line(&mut self) -> Option<String> {
        let end = self.output.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.output.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Waits for output. `false`: there will be none, or no longer.
    fn read_some(&mut self) -> bool {
        let Some(from) = self.child.stdout.as_mut() else {
            return false;
        };
        while !self.is_at_end {
            if interrupted() || Instant::now() > self.deadline || self.output.len() > OUTPUT_MAX {
                return false;
            }
            let mut look = libc::pollfd {
                fd: from.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the kernel reads and writes one entry.
            if unsafe { libc::poll(&mut look, 1, LOOK) } <= 0 {
                continue;
            }
            let mut bytes = [0; 4096];
            match from.read(&mut bytes) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => {
                    self.output.extend_from_slice(&bytes[..read]);
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_at_end = true,
            }
        }
        false
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(libc::SIGSYS), _) => {
            "its process was ended for a system call that is forbidden here".to_string()
        }
        (Some(libc::SIGKILL), _) => {
            "its process was killed, perhaps for lack of memory".to_string()
        }
        (Some(signal), _) => format!("its process was ended by signal {signal}"),
        (None, Some(code)) => format!("its process ended with status {code}"),
        (None, None) => "its process ended".to_string(),
    }
}
