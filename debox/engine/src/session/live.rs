// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes' sums for a view that is refreshed (debox/probe/live.h).

use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::{thread_table, Session};
use crate::tables::{self, types};

/// How long a probe may go on writing to the table that it began with.
const GRACE: Duration = Duration::from_millis(1);

/// How many entries are read at once.
const AT_ONCE: u32 = 1024;

impl Session {
    /// Takes what was summed since the last time.
    pub(crate) fn take_live(&mut self) -> Result<Vec<(types::live_key, types::live_row)>> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        let turn = &mut bss.context("no .bss in the probes")?.live_turn;
        let was_odd = *turn & 1 == 1;
        *turn = turn.wrapping_add(1);
        std::thread::sleep(GRACE);
        let maps = &self.skel.maps;
        let entries = match was_odd {
            true => maps
                .live_odd
                .lookup_and_delete_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY),
            false => maps
                .live_even
                .lookup_and_delete_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY),
        };
        let entries = entries.context("cannot read what threads waited for")?;
        let rows = entries
            .filter_map(|(key, row)| Some((tables::read_value(&key)?, tables::read_value(&row)?)));
        Ok(rows.collect())
    }

    /// Waits for which there was no room, and their time.
    pub(crate) fn live_lost(&self) -> (u64, u64) {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or((0, 0), |bss| (bss.live_lost, bss.live_lost_ns))
    }

    /// The monitored threads.
    pub(crate) fn living_threads(&self) -> Result<Vec<types::thread>> {
        let used = self.threads_given_out().min(self.options.max_threads);
        thread_table::living(&self.skel.maps.threads, used)
    }

    /// The threads that have ended since the last time.
    pub(crate) fn take_ended(&mut self) -> Vec<types::thread> {
        let mut events = self.events.borrow_mut();
        let mut ended = std::mem::take(&mut events.ended);
        ended.append(&mut events.ended_unlisted);
        ended
    }

    /// Who has had the CPUs that threads waited for, since the beginning.
    pub(crate) fn cpu_owners(&self) -> Result<Vec<(types::cpu_key, types::cpu_row)>> {
        let rows = &self.skel.maps.cpu_rows;
        let entries = rows
            .lookup_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY)
            .context("cannot read who had the CPUs")?;
        let read = entries
            .filter_map(|(key, row)| Some((tables::read_value(&key)?, tables::read_value(&row)?)));
        Ok(read.collect())
    }
}
