// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is looked at: this process's own probes, or the broker's.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use crate::broker::RemoteSession;
use crate::live_tables::LiveTables;
use crate::opened::Opened;
use crate::recorder::texts::Lookups;
use crate::session::Session;
use crate::tables::{types, OpenWait};

pub(super) enum Source {
    Own(Box<Session>),
    Brokered {
        session: Box<RemoteSession>,
        /// What threads that are asleep waited for at the last look.
        waits: HashMap<u32, OpenWait>,
    },
}

impl Source {
    pub fn of(opened: Opened) -> Source {
        match opened {
            Opened::Own(session) => Source::Own(session),
            Opened::Brokered(session) => Source::Brokered {
                session,
                waits: HashMap::new(),
            },
        }
    }

    /// What waits refer to by names.
    pub fn lookups(&self) -> &dyn Lookups {
        match self {
            Source::Own(session) => &**session,
            Source::Brokered { session, .. } => &**session,
        }
    }

    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        match self {
            Source::Own(session) => session.enrol_running(pids),
            Source::Brokered { session, .. } => session.enrol_running(pids),
        }
    }

    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        match self {
            Source::Own(session) => session.enrol_members(pids),
            Source::Brokered { session, .. } => session.enrol_members(pids),
        }
    }

    pub fn left_out(&self) -> Vec<String> {
        match self {
            Source::Own(session) => session.left_out(),
            Source::Brokered { session, .. } => session.left_out(),
        }
    }

    pub fn events_fd(&self) -> Option<i32> {
        match self {
            Source::Own(session) => Some(session.events_fd()),
            Source::Brokered { .. } => None,
        }
    }

    pub fn has_threads(&mut self) -> Result<bool> {
        match self {
            Source::Own(session) => session.has_threads(),
            Source::Brokered { session, .. } => session.has_threads(),
        }
    }

    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        match self {
            Source::Own(session) => session.poll(timeout),
            Source::Brokered { session, .. } => session.poll(timeout),
        }
    }

    /// What has happened since the last time.
    pub fn take(&mut self) -> Result<LiveTables> {
        match self {
            Source::Own(session) => Ok(LiveTables {
                ended: session.take_ended(),
                ..LiveTables::take(session)?
            }),
            Source::Brokered { session, waits } => {
                let mut tables = session.look()?;
                *waits = std::mem::take(&mut tables.waits);
                Ok(tables)
            }
        }
    }

    /// The calls that tasks have been asleep in since `from_ns` or later, with their stacks, by index in the table of
    /// threads.
    pub fn tasks(&mut self, from_ns: u64) -> Result<HashMap<u32, types::in_flight>> {
        match self {
            Source::Own(session) => session.tasks_in_flight_from(from_ns),
            Source::Brokered { session, .. } => session.sleeping_tasks(from_ns),
        }
    }

    /// What a thread that is asleep waits for, with as much as is known.
    pub fn known_wait(&self, thread: &types::thread) -> Result<OpenWait> {
        match self {
            Source::Own(session) => session.known_wait(thread),
            Source::Brokered { waits, .. } => {
                Ok(waits.get(&thread.index).copied().unwrap_or_default())
            }
        }
    }
}
