// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the client's processes under monitoring.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};

use super::Run;
use crate::broker::access;
use crate::broker::peer::Peer;
use crate::session::Enrolment;

impl Run {
    pub(super) fn learn_namespace(&mut self, peer: &Peer) -> Result<()> {
        let enrolment = Enrolment {
            tgid: peer.pid,
            tid: peer.pid,
            learns: true,
            ..Enrolment::default()
        };
        self.session.enrol_by(&enrolment, Some(peer.descriptor()))
    }

    /// Fails if the client may not inspect a process that it attaches to. For a descendant, the probe checks
    /// it.
    pub(super) fn may_enrol(&self, peer: &Peer, process: &OwnedFd) -> Result<()> {
        match self.session.options().adopts_sleeps {
            true => access::require(peer, pid_of(process)?),
            false => Ok(()),
        }
    }

    /// Enrols a descendant of the client, or a process that it may attach to. The process is identified by the
    /// descriptor, not by its id. Returns how many of its threads are new.
    pub(super) fn enrol(
        &mut self,
        peer: &Peer,
        process: &OwnedFd,
        is_running: bool,
    ) -> Result<u32> {
        if !self.session.is_attached() {
            self.session.attach()?;
        }
        let pid = pid_of(process)?;
        let attaches = self.session.options().adopts_sleeps;
        let before = self.session.threads_enrolled();
        let enrolment = Enrolment {
            tgid: pid,
            ancestor: if attaches { 0 } else { peer.pid },
            is_armed: !is_running,
            ..Enrolment::default()
        };
        let walked = self.session.enrol_by(&enrolment, Some(process.as_fd()));
        ensure!(peer.is_alive(), "the process has ended");
        // A running process may have ended by now, or be monitored since it was forked.
        if !is_running {
            walked?;
            ensure!(
                self.session.threads_enrolled() > before,
                "the process is not below the one that asks, or has other rights than it"
            );
        }
        self.used = Instant::now();
        Ok(self.session.threads_enrolled() - before)
    }
}

/// The id, in this namespace, of the process that a descriptor stands for.
fn pid_of(process: &OwnedFd) -> Result<u32> {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let text = fs::read_to_string(path).context("cannot ask for the process")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match line.and_then(|pid| pid.trim().parse::<u32>().ok()) {
        Some(pid) if pid > 0 => Ok(pid),
        _ => bail!("the descriptor is not that of a living process"),
    }
}
