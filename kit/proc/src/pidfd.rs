// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of processes, which stay with a process when its number is used again.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use rustix::time::Timespec;

/// # Errors
///
/// There is no such process, no descriptor is free, or the kernel is older than 5.3.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether the process has ended, or does so within this time.
pub fn ends_within(process: BorrowedFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    let mut asked = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    matches!(poll(&mut asked, time.as_ref()), Ok(1))
}

/// Asks the process to end (SIGTERM). It may have ended already.
pub fn ask_to_end(process: BorrowedFd) {
    let _ = pidfd_send_signal(process, Signal::TERM);
}

/// Ends the process (SIGKILL). It may have ended already.
pub fn kill(process: BorrowedFd) {
    let _ = pidfd_send_signal(process, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::Command;

    #[test]
    fn a_process_ends_when_it_is_told_to() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("coreutils");
        let process = open(child.id()).expect("it lives");
        assert!(!ends_within(process.as_fd(), Duration::ZERO));
        assert!(!ends_within(process.as_fd(), Duration::from_millis(20)));
        ask_to_end(process.as_fd());
        assert!(ends_within(process.as_fd(), Duration::from_secs(20)));
        child.wait().expect("it is ours");
        // Its number is nobody's, and the descriptor still is its own.
        assert!(ends_within(process.as_fd(), Duration::ZERO));
        kill(process.as_fd());
        assert!(open(0).is_err() && open(u32::MAX).is_err());
    }
}
