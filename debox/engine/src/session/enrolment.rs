// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tasks the probes bring under monitoring.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};

use super::Session;
use crate::kernel::objects::walk_tasks;

/// What the probes are asked to enrol (`enrol_tasks` of debox/probe/life.h).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Enrolment {
    /// The process, with all its threads.
    pub tgid: u32,
    /// Only this thread; 0: all of them.
    pub tid: u32,
    /// The broker's client that it belongs to.
    pub client: u32,
    /// Only if the process is a descendant of this one; 0: in any case.
    pub ancestor: u32,
    /// Whether monitoring begins with the next `execve`.
    pub is_armed: bool,
    /// Whether only the namespace of its process ids is learned.
    pub learns: bool,
}

impl Session {
    /// Enrols tasks. `process`: the only process whose tasks are walked.
    pub(crate) fn enrol_by(
        &mut self,
        enrolment: &Enrolment,
        process: Option<BorrowedFd>,
    ) -> Result<()> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        let bss = bss.context("no .bss in the probes")?;
        (bss.enrol_tgid, bss.enrol_tid) = (enrolment.tgid, enrolment.tid);
        (bss.enrol_client, bss.enrol_ancestor) = (enrolment.client, enrolment.ancestor);
        (bss.enrol_armed, bss.enrol_learns) = (enrolment.is_armed, enrolment.learns);
        walk_tasks(self.skel.progs.enrol_tasks.as_fd(), process)
    }

    /// The number of threads so far that were not born under monitoring.
    pub(crate) fn threads_enrolled(&self) -> u32 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| bss.enrol_count)
    }

    /// Releases the threads of clients that have left.
    pub(crate) fn release_tasks(&self) -> Result<()> {
        walk_tasks(self.skel.progs.release_tasks.as_fd(), None)
    }
}
