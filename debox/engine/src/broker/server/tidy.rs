// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes back what clients had.

use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Result;

use super::{Broker, Connection, Held, Stage, PATIENCE, UNUSED, USUAL_UNUSED};
use crate::broker::shared::mark_gone;
use crate::kernel::objects;

impl Broker {
    pub(super) fn end(&mut self, connection: Connection) {
        self.release(connection.owner, connection.stage);
        self.quota.disconnect(connection.owner);
    }

    /// Releases what a client had. Its slots count as its share until no process holds them.
    pub(super) fn release(&mut self, owner: u32, stage: Stage) {
        if let Stage::Client {
            kind,
            client,
            map,
            slots_id,
            slots,
            memory,
        } = stage
        {
            let session = self.sessions.iter_mut().find(|shared| shared.kind == kind);
            if let Some(session) = session {
                session.leave(client);
            }
            mark_gone(&map, slots);
            self.held.push(Held {
                owner,
                map: slots_id,
                slots,
                _memory: memory,
            });
        }
    }

    pub(super) fn tick(&mut self) -> Result<()> {
        for session in &mut self.sessions {
            session.tick()?;
        }
        self.unload(UNUSED, USUAL_UNUSED);
        self.take_back();
        self.end_runs(JoinHandle::is_finished);
        let now = Instant::now();
        self.quota.forget_idle(now);
        self.budget.forget_idle(now);
        self.log.settle(now);
        self.owners.refresh();
        let is_late = |connection: &Connection| {
            !matches!(connection.stage, Stage::Client { .. } | Stage::Waits(_))
                && now.saturating_duration_since(connection.since) > PATIENCE
        };
        let late: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_late(connection))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(connection) = self.connections.remove(&number) {
                self.end(connection);
            }
        }
        Ok(())
    }

    /// Makes slots available again that no process holds any more.
    pub(super) fn take_back(&mut self) {
        let quota = &mut self.quota;
        self.held.retain(|held| {
            let is_held = !objects::map_is_gone(held.map);
            if !is_held {
                quota.give_back(held.owner, held.slots);
            }
            is_held
        });
        self.held_of_runs
            .retain(|given| !objects::map_is_gone(given.map));
    }
}
