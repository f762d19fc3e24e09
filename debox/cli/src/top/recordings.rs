// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that the view started. Each is a process beside it that ends by itself.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};

/// How long a recording takes.
const RECORDED: &str = "10s";
/// As much of what a recording says is read.
const SAID_MAX: u64 = 64 << 10;

/// Those that have not ended, and a message for each one that has.
pub struct Recordings {
    ended: Receiver<String>,
    end: Sender<String>,
}

impl Default for Recordings {
    fn default() -> Self {
        let (end, ended) = channel();
        Recordings { ended, end }
    }
}

impl Recordings {
    /// Starts one. Returns what is to be shown.
    pub fn start(&self, pid: u32) -> String {
        let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        let name = format!("debox-{pid}-{now}.parquet");
        let pid_text = pid.to_string();
        let arguments = ["record", "-o", &name, "-p", &pid_text, "--for", RECORDED];
        let started = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
        });
        match started {
            Ok(child) => {
                let end = self.end.clone();
                let shown = name.clone();
                std::thread::spawn(move || end.send(how_it_ended(child, pid, &shown)));
                format!("recording process {pid} for {RECORDED} to {name}")
            }
            Err(error) => format!("no recording: {error}"),
        }
    }

    /// How one ended, if one has since the last time.
    pub fn ended(&self) -> Option<String> {
        self.ended.try_recv().ok()
    }
}

fn how_it_ended(mut child: Child, pid: u32, name: &str) -> String {
    let mut said = Vec::new();
    if let Some(errors) = child.stderr.take() {
        let _ = errors.take(SAID_MAX).read_to_end(&mut said);
    }
    let is_well = child.wait().is_ok_and(|status| status.success());
    if is_well {
        return format!("process {pid} is recorded: debox report {name}");
    }
    let said = String::from_utf8_lossy(&said);
    let why = said.lines().find(|line| !line.trim().is_empty());
    let why = why.unwrap_or("debox record failed");
    let why = why.strip_prefix("debox: ").unwrap_or(why);
    format!(
        "no recording of process {pid}: {}",
        kit_console::printable(why)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh")
            .args(["-c", script])
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is a shell")
    }

    #[test]
    fn a_failure_is_said() {
        let ended = |script: &str| how_it_ended(shell(script), 7, "a.parquet");
        let failed = ended("echo >&2; echo 'debox: cannot write a.parquet' >&2; exit 1");
        assert_eq!(failed, "no recording of process 7: cannot write a.parquet");
        assert!(ended("exit 3").contains("debox record failed"));
        let done = ended("echo 'debox: in the file' >&2");
        assert_eq!(done, "process 7 is recorded: debox report a.parquet");
    }
}
