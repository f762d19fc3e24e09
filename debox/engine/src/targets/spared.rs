// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are only monitored if they are named by their ids: a debox that monitors itself, or the broker
//! that serves it, would see its own work.

use std::fs;

/// Whether this is the process that asks.
pub(crate) fn is_own(pid: u32) -> bool {
    pid == std::process::id()
}

/// Whether a process is this one, or a broker.
pub(crate) fn is_spared(pid: u32) -> bool {
    is_own(pid) || is_broker(pid)
}

/// A broker runs the same program, or one of the same name, as root. Anybody else could call a program so, in order not to
/// be monitored.
fn is_broker(pid: u32) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    if program.file_name().is_none_or(|name| name != "debox") {
        return false;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"broker") && is_roots(pid)
}

fn is_roots(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().map(procfs::process::Process::new);
    let status = process.and_then(|process| process.ok()?.status().ok());
    status.is_some_and(|status| {
        let ids = [status.ruid, status.euid, status.suid, status.fuid];
        ids.iter().all(|id| *id == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_program_that_is_only_called_so_is_no_broker() {
        // SAFETY: geteuid only returns a number.
        if unsafe { libc::geteuid() } != 0 {
            return debox_skipped::skipped("a process of another user: it takes root");
        }
        // A shell of this name, with a script of the other.
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("debox");
        fs::copy("/bin/sh", &program).expect("there is a shell");
        fs::write(directory.path().join("broker"), "read line\n").expect("it is ours");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("it is ours");
        for (user, is_one) in [("0", true), ("54321", false)] {
            let mut child = Command::new("setpriv")
                .args(["--reuid", user, "--regid", user, "--clear-groups"])
                .args(["./debox", "broker"])
                .current_dir(directory.path())
                .stdin(Stdio::piped())
                .spawn()
                .expect("util-linux is there");
            let until = Instant::now() + Duration::from_secs(20);
            let runs = || {
                let runs = fs::read_link(format!("/proc/{}/exe", child.id()));
                runs.is_ok_and(|runs| runs.ends_with("debox"))
            };
            while !runs() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            let (runs, found) = (runs(), is_spared(child.id()));
            let _ = child.kill();
            let _ = child.wait();
            assert!(runs, "it never started");
            assert_eq!(found, is_one, "as user {user}");
        }
    }
}
