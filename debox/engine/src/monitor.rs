//! A session for a command or for running processes, with this process's own probes or the broker's.

use std::time::Duration;

use anyhow::Result;

use crate::broker::RemoteSession;
use crate::collect::Outcome;
use crate::opened::{self, Opened};
use crate::options::Options;
use crate::report::Report;
use crate::session::Session;

/// The session. Both kinds give the same report.
pub enum Monitor {
    Own(Box<Session>),
    Brokered(Box<RemoteSession>),
}

impl Monitor {
    /// Loads the probes. The broker does so instead if this process may not, or if
    /// [`crate::broker::VARIABLE`] names a broker.
    pub fn open(options: Options) -> Result<Monitor> {
        Ok(match opened::open(options)? {
            Opened::Own(session) => Monitor::Own(session),
            Opened::Brokered(session) => Monitor::Brokered(session),
        })
    }

    /// What a process needs in its environment to find this session's user tap.
    pub fn tap_address(&self) -> Option<&str> {
        match self {
            Monitor::Own(session) => session.tap_address(),
            Monitor::Brokered(session) => session.tap_address(),
        }
    }

    /// Enrols a child of this process from its next `execve` on.
    pub fn enrol(&mut self, pid: u32) -> Result<()> {
        match self {
            Monitor::Own(session) => session.enrol(pid, true).map(drop),
            Monitor::Brokered(session) => session.enrol(pid),
        }
    }

    /// Enrols running processes and, unless the session is for one process only, their descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        match self {
            Monitor::Own(session) => session.enrol_running(pids),
            Monitor::Brokered(session) => session.enrol_running(pids),
        }
    }

    /// Enrols processes that became members of what is monitored. Returns those of which nothing was monitored before.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        match self {
            Monitor::Own(session) => session.enrol_members(pids),
            Monitor::Brokered(session) => session.enrol_members(pids),
        }
    }

    /// Processes that should be monitored and are not, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        match self {
            Monitor::Own(session) => session.left_out(),
            Monitor::Brokered(session) => session.left_out(),
        }
    }

    /// A descriptor that is readable when events are waiting, if there is one.
    pub fn events_fd(&self) -> Option<i32> {
        match self {
            Monitor::Own(session) => Some(session.events_fd()),
            Monitor::Brokered(_) => None,
        }
    }

    /// Receives events for up to `timeout`.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        match self {
            Monitor::Own(session) => session.poll(timeout),
            Monitor::Brokered(session) => session.poll(timeout),
        }
    }

    /// How many threads of a process are still monitored.
    pub fn threads_alive(&mut self, pid: u32) -> Result<usize> {
        match self {
            Monitor::Own(session) => session.threads_alive(pid),
            Monitor::Brokered(session) => session.threads_alive(pid),
        }
    }

    /// Whether anything is monitored.
    pub fn has_threads(&mut self) -> Result<bool> {
        match self {
            Monitor::Own(session) => session.has_threads(),
            Monitor::Brokered(session) => session.has_threads(),
        }
    }

    /// Stops monitoring and reports.
    pub fn finish(self, outcome: Outcome) -> Result<Report> {
        match self {
            Monitor::Own(session) => session.finish(outcome),
            Monitor::Brokered(session) => session.finish(outcome),
        }
    }
}
