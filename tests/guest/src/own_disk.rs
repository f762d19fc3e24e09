// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side of commands (`commands.rs`): runs them on the guest's own disk.

use std::io::BufRead;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use nix::mount::MsFlags;
use nix::sys::termios;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;

use crate::report::Message;
use crate::report::Ran;
use crate::report::Request;

/// Where the guest has its disk.
const DISK: &str = "/mnt/disk";
const DEVICE: &str = "/dev/vda";

/// Runs a command for each line. `say` sends a message.
pub fn serve(say: impl Fn(&Message)) -> Result<()> {
    mount_disk()?;
    let input = std::io::stdin();
    // Lines longer than those that people type, and nothing of them is sent back.
    let mut port = termios::tcgetattr(&input)?;
    termios::cfmakeraw(&mut port);
    termios::tcsetattr(&input, termios::SetArg::TCSANOW, &port)?;
    say(&Message::Ready);
    for line in input.lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        say(&Message::Ran(run(&request.words)));
        reap();
    }
    Ok(())
}

/// The disk, with the kernel's file systems on its directories.
fn mount_disk() -> Result<()> {
    let mount = |what: &str, kind, place: &str, flags| {
        nix::mount::mount(Some(what), place, kind, flags, None::<&str>)
            .with_context(|| format!("cannot mount {what} on {place}"))
    };
    mount("memory", Some("tmpfs"), "/mnt", MsFlags::empty())?;
    std::fs::create_dir(DISK)?;
    mount(DEVICE, Some("ext4"), DISK, MsFlags::empty())?;
    for name in ["dev", "proc", "sys"] {
        let place = format!("{DISK}/{name}");
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(&format!("/{name}"), None, &place, flags)?;
    }
    Ok(())
}

fn run(words: &[String]) -> Ran {
    let done = Command::new("chroot")
        .arg(DISK)
        .args(words)
        .stdin(Stdio::null())
        .output();
    match done {
        Ok(done) => Ran {
            status: status_of(done.status),
            out: String::from_utf8_lossy(&done.stdout).into_owned(),
            err: String::from_utf8_lossy(&done.stderr).into_owned(),
        },
        Err(error) => Ran {
            status: 127,
            out: String::new(),
            err: format!("chroot: {error}\n"),
        },
    }
}

fn status_of(status: ExitStatus) -> u8 {
    let number = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    };
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Children of commands that ended before them are now those of the first process.
fn reap() {
    let flags = Some(WaitPidFlag::WNOHANG);
    while !matches!(waitpid(None, flags), Ok(WaitStatus::StillAlive) | Err(_)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_shells() {
        assert_eq!(status_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_of(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }
}
