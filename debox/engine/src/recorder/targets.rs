// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose records are kept, and what else is known of them.

use anyhow::Result;

use super::source::Source;
use super::Recorder;
use crate::report::{Deadlock, Process};
use crate::trigger::Fired;

impl Recorder {
    /// With `options.user_stamps`: the value that a process needs in its environment so that its shim finds the
    /// session.
    pub fn tap_address(&self) -> Option<&str> {
        match &self.source {
            Source::Own(own) => own.session().tap_address(),
            Source::Brokered(session) => session.tap_address(),
        }
    }

    /// Enrols the threads of a process, now or (`armed`) from their next `execve` on.
    pub fn enrol(&mut self, pid: u32, armed: bool) -> Result<()> {
        match &mut self.source {
            Source::Own(own) => own.session_mut().enrol(pid, armed).map(drop),
            Source::Brokered(session) if armed => session.enrol(pid),
            Source::Brokered(session) => session.enrol_one(pid),
        }
    }

    /// Enrols running processes and, unless the session is for one process only, their descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        match &mut self.source {
            Source::Own(own) => own.session_mut().enrol_running(pids),
            Source::Brokered(session) => session.enrol_running(pids),
        }
    }

    /// Enrols processes that became members of what is recorded. Returns those of which nothing was recorded before.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        match &mut self.source {
            Source::Own(own) => own.session_mut().enrol_members(pids),
            Source::Brokered(session) => session.enrol_members(pids),
        }
    }

    /// Processes that should be recorded and are not, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        match &self.source {
            Source::Own(own) => own.session().left_out(),
            Source::Brokered(session) => session.left_out(),
        }
    }

    /// A descriptor that is readable when events are waiting, if there is one.
    pub fn events_fd(&self) -> Option<i32> {
        match &self.source {
            Source::Own(own) => Some(own.session().events_fd()),
            Source::Brokered(_) => None,
        }
    }

    /// The processes' names from their command lines.
    pub fn processes(&self) -> Vec<Process> {
        self.source.lookups().events().titles.list()
    }

    /// Whether anything is monitored.
    pub fn has_threads(&mut self) -> Result<bool> {
        match &mut self.source {
            Source::Own(own) => own.session().has_threads(),
            Source::Brokered(session) => session.has_threads(),
        }
    }

    /// How many threads of a process are still monitored.
    pub fn threads_alive(&mut self, pid: u32) -> Result<usize> {
        match &mut self.source {
            Source::Own(own) => own.session().threads_alive(pid),
            Source::Brokered(session) => session.threads_alive(pid),
        }
    }

    /// Registers `hook` to be called for each call for which a trigger fires, while records are received.
    pub fn on_trigger(&mut self, hook: impl FnMut(&Fired) + 'static) {
        match &mut self.source {
            Source::Own(own) => own.session_mut().on_trigger(hook),
            Source::Brokered(session) => session.on_trigger(hook),
        }
    }

    /// The deadlocks found so far.
    pub fn deadlocks(&self) -> &[Deadlock] {
        match &self.source {
            Source::Own(own) => own.session().deadlocks(),
            Source::Brokered(session) => session.deadlocks(),
        }
    }
}
