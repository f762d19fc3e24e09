// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes that start others have in common.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{poll, PollFd, Timespec};
use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::Source;

/// An application that is to be managed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// For messages.
    pub name: String,
    pub source: Source,
    pub processes: usize,
}

pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let kind = SocketType::SEQPACKET;
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// Says when a child has ended.
pub(super) fn child_signals() -> Result<SignalFd> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    ends.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&ends, flags)?)
}

/// Until one is ready, or this time.
pub(super) fn wait(ready: &mut [PollFd<'_>], until: Option<Instant>) -> Result<()> {
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    match poll(ready, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait"),
    }
}
