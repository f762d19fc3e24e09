// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the probes saw between two looks of a view that is refreshed, before it is put in words.

use std::collections::HashMap;

use anyhow::Result;

use crate::session::Session;
use crate::tables::{self, types, OpenWait};

#[derive(Default)]
pub(crate) struct LiveTables {
    /// Waits that have ended.
    pub rows: Vec<(types::live_key, types::live_row)>,
    pub living: Vec<types::thread>,
    pub ended: Vec<types::thread>,
    /// By index in the table of threads: what those that are asleep wait for.
    pub waits: HashMap<u32, OpenWait>,
    /// Who has had the CPUs that threads waited for, since the beginning.
    pub cpus: Vec<(types::cpu_key, types::cpu_row)>,
    /// Waits for which there was no room, and their time, since the beginning.
    pub lost: (u64, u64),
    /// Threads for which there was no room, since the beginning.
    pub lost_threads: u64,
}

impl LiveTables {
    /// Takes what has happened since the last time, without threads that have ended and what threads wait for.
    pub fn take(session: &mut Session) -> Result<LiveTables> {
        Ok(LiveTables {
            rows: session.take_live()?,
            living: session.living_threads()?,
            cpus: session.cpu_owners()?,
            lost: session.live_lost(),
            lost_threads: session.lost()?.threads,
            ..LiveTables::default()
        })
    }

    /// Adds what the threads that are asleep wait for.
    pub fn add_waits(&mut self, session: &Session) -> Result<()> {
        let asleep = |thread: &&types::thread| thread.mode == tables::MODE_BLOCKED;
        for thread in self.living.iter().filter(asleep) {
            self.waits.insert(thread.index, session.known_wait(thread)?);
        }
        Ok(())
    }
}
