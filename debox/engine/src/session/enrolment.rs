// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tasks the probes bring under monitoring.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{bail, Context, Result};
use kit_proc::pidfd;

use super::Session;
use crate::clock::monotonic_ns;
use crate::kernel::{self, objects::walk_tasks};
use crate::targets::is_spared;
use crate::tree;

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
    /// Enrols the threads of a process, now or (`armed`) from their next `execve` on. Returns how many there are.
    pub fn enrol(&mut self, tgid: u32, armed: bool) -> Result<u32> {
        let mut enrolled = 0;
        tree::enrol_all(&[tgid], false, |pid| {
            let new = self.enrol_threads(pid, armed)?;
            enrolled += new;
            Ok(new)
        })?;
        if enrolled == 0 {
            bail!("process {tgid} has no thread that can be monitored");
        }
        Ok(enrolled)
    }

    /// Enrols running processes and, unless the session is for one process only, all their descendants.
    pub fn enrol_running(&mut self, tgids: &[u32]) -> Result<()> {
        let mut enrolled = BTreeSet::new();
        let with_children = !self.options.one_process;
        tree::enrol_all(tgids, with_children, |pid| {
            if is_spared(pid) && !tgids.contains(&pid) {
                return Ok(0);
            }
            let new = self.enrol_threads(pid, false)?;
            if new > 0 && enrolled.insert(pid) {
                let titles = &mut self.events.borrow_mut().titles;
                titles.add_running(pid, monotonic_ns());
            }
            Ok(new)
        })?;
        match tgids.iter().find(|pid| !enrolled.contains(pid)) {
            Some(pid) => bail!("process {pid} has no thread that can be monitored"),
            None => Ok(()),
        }
    }

    /// Enrols processes that became members of what is monitored, with their descendants. Returns those of which
    /// nothing was monitored before; others may have ended, or are left out.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        let mut enrolled = BTreeSet::new();
        let with_children = !self.options.one_process;
        tree::enrol_all(pids, with_children, |pid| {
            if is_spared(pid) {
                return Ok(0);
            }
            match self.enrol_threads(pid, false) {
                Ok(new) => {
                    if new > 0 && enrolled.insert(pid) {
                        let titles = &mut self.events.borrow_mut().titles;
                        titles.add_running(pid, monotonic_ns());
                    }
                    Ok(new)
                }
                Err(error) => {
                    // Unless it has ended. The others go on.
                    if kernel::require_process(pid).is_ok() {
                        self.left_out.add(format!("process {pid}: {error:#}"));
                    }
                    Ok(0)
                }
            }
        })?;
        Ok(enrolled.into_iter().collect())
    }

    /// Processes that should be monitored and are not, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        self.left_out.notes()
    }

    /// Enrols a process's threads, and returns how many were not monitored before. A thread that starts meanwhile
    /// may be missed.
    fn enrol_threads(&mut self, tgid: u32, armed: bool) -> Result<u32> {
        if self.options.adopts_sleeps && !armed {
            self.send_holders(tgid);
            self.send_polls(tgid);
        }
        let process = match pidfd::open(tgid) {
            // Under valgrind there is no such call: all tasks are walked.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => None,
            opened => Some(opened.with_context(|| format!("there is no process {tgid}"))?),
        };
        let before = self.threads_enrolled();
        let enrolment = Enrolment {
            tgid,
            is_armed: armed,
            ..Enrolment::default()
        };
        self.enrol_by(&enrolment, process.as_ref().map(AsFd::as_fd))?;
        Ok(self.threads_enrolled() - before)
    }

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
