//! A session for one command, with probes of this process's own or the broker's.

use std::time::Duration;

use anyhow::{bail, Result};

use crate::broker::{self, RemoteSession};
use crate::collect::Outcome;
use crate::kernel;
use crate::report::Report;
use crate::session::{Options, Session};

/// What monitors a command. Both kinds give the same report.
pub enum Monitor {
    Own(Box<Session>),
    Brokered(Box<RemoteSession>),
}

impl Monitor {
    /// Loads the probes, or has the broker do so where this process may not, or where
    /// [`broker::VARIABLE`] names one.
    pub fn open(options: Options) -> Result<Monitor> {
        if kernel::has_bpf_privilege() && !broker::is_named() {
            return Ok(Monitor::Own(Box::new(Session::open(options)?)));
        }
        let Some(path) = broker::socket_path() else {
            bail!(
                "loading probes {}, and {} is empty, so that no broker is asked: run it with sudo",
                kernel::what_it_takes(),
                broker::VARIABLE
            );
        };
        match RemoteSession::open(&path, options) {
            Ok(remote) => Ok(Monitor::Brokered(Box::new(remote))),
            Err(error) if broker::is_absent(&error) => bail!(
                "loading probes {}, and no broker answers at {}: run it with sudo, or start a broker \
                 once for all users with `sudo debox broker`",
                kernel::what_it_takes(),
                path.display()
            ),
            Err(error) if broker::is_silent(&error) => {
                Err(error.context(format!("no session at {}", path.display())))
            }
            Err(error) => Err(error),
        }
    }

    /// What a process needs in its environment to find this session's user tap.
    pub fn tap_address(&self) -> Option<&str> {
        match self {
            Monitor::Own(session) => session.tap_address(),
            Monitor::Brokered(session) => session.tap_address(),
        }
    }

    /// Brings a child of this process under monitoring from its next `execve` on.
    pub fn enrol(&mut self, pid: u32) -> Result<()> {
        match self {
            Monitor::Own(session) => session.enrol(pid, true).map(drop),
            Monitor::Brokered(session) => session.enrol(pid),
        }
    }

    /// Takes in events for up to `timeout`.
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

    /// Stops monitoring and reports.
    pub fn finish(self, outcome: Outcome) -> Result<Report> {
        match self {
            Monitor::Own(session) => session.finish(outcome),
            Monitor::Brokered(session) => session.finish(outcome),
        }
    }
}
