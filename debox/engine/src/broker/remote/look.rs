// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at what threads wait for while the session runs.

use std::collections::HashMap;

use anyhow::{bail, Context, Result};

use super::RemoteSession;
use crate::broker::protocol::Request;
use crate::broker::wire::look;
use crate::live_tables::LiveTables;
use crate::tables::types;

impl RemoteSession {
    /// What has happened since the last look. Fails when the broker has gone.
    pub(crate) fn look(&mut self) -> Result<LiveTables> {
        if let Some(gone) = &self.gone {
            bail!("{}", gone.how);
        }
        let bytes = self.ask_for_all(&Request::Look)?;
        let tables = look::decode(&bytes).context("its look is not understood")?;
        // Threads that end are events.
        self.take_all()?;
        let events = self.events.get_mut();
        let mut ended = std::mem::take(&mut events.ended);
        ended.append(&mut events.ended_unlisted);
        Ok(LiveTables { ended, ..tables })
    }

    /// The calls that threads have been asleep in since `from_ns` or later, with numbers for the places of their stacks.
    pub(crate) fn sleeping_tasks(
        &mut self,
        from_ns: u64,
    ) -> Result<HashMap<u32, types::in_flight>> {
        let bytes = self.ask_for_all(&Request::Asleep { from_ns })?;
        let tasks = look::decode_tasks(&bytes).context("its tasks are not understood")?;
        let tasks = tasks.into_iter().map(|(at, mut task, stack)| {
            for (to, place) in task.frames.iter_mut().zip(stack) {
                *to = self.fetched.number(place);
                task.depth += 1;
            }
            (at, task)
        });
        Ok(tasks.collect())
    }
}
