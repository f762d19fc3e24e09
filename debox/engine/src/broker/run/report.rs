// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the client what was measured so far.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};
use nix::sys::socket::MsgFlags;

use super::{say, Run, BETWEEN_REPORTS, LONG, REPORT, ROOM, TICK};
use crate::broker::account::Share;
use crate::broker::channel;
use crate::broker::protocol::{FrameText, Reply, BULK};
use crate::broker::wire::{self, Beside};
use crate::clock::monotonic_ns;
use crate::collect::Snapshot;
use crate::session::frames_in_flight;
use crate::symbols::Symbols;
use crate::tables;

impl Run {
    pub(super) fn report(&mut self, connection: &OwnedFd, is_last: bool) -> Result<()> {
        let now = Instant::now();
        let is_too_early = |last: Instant| now.saturating_duration_since(last) < BETWEEN_REPORTS;
        ensure!(
            is_last || !self.reported.is_some_and(is_too_early),
            "reports are asked for too often"
        );
        let mut room = self.room_for_report()?;
        if is_last && self.stopped.is_none() {
            self.stop()?;
        }
        let (stopped_ns, tasks) = match self.stopped.take() {
            Some(stopped) => (stopped.at_ns, stopped.tasks),
            None => {
                self.session.look_before_stop()?;
                let tasks = self.session.tasks_in_flight()?;
                (monotonic_ns(), tasks)
            }
        };
        let stacks = tasks.iter().map(|(at, task)| (*at, frames_in_flight(task)));
        let (snapshot, ended) = self.take_out(stopped_ns, &stacks.collect())?;
        self.look_up(&snapshot);
        let beside = Beside {
            tasks,
            triggers: self.session.trigger_counts()?,
        };
        let bytes = wire::encode(&snapshot, ended, &self.places, &beside);
        drop(snapshot);
        self.last_report = bytes.len() as u64;
        room.set(self.last_report.saturating_sub(REPORT));
        self.send_all(connection, &bytes)?;
        self.reported = Some(Instant::now());
        Ok(())
    }

    /// Sends data that does not fit into one reply.
    pub(super) fn send_all(&self, connection: &OwnedFd, bytes: &[u8]) -> Result<()> {
        let (start, size) = (Instant::now(), bytes.len() as u64);
        say(connection, &Reply::Report { size }, None)?;
        for chunk in bytes.chunks(BULK) {
            ensure!(start.elapsed() < LONG, "the client does not read");
            channel::send(connection.as_fd(), chunk, &[], MsgFlags::empty())
                .context("the client does not read")?;
        }
        Ok(())
    }

    /// Memory for the part of a report beyond the usual size. The report is assumed to be as large as the last
    /// one, and takes three times its size while it is read and encoded.
    fn room_for_report(&self) -> Result<Share> {
        let bytes = (3 * self.last_report).saturating_sub(REPORT);
        let (limits, start) = (&self.limits, Instant::now());
        loop {
            let taken = limits.account.take(Some(limits.owner), "a report", bytes);
            match taken {
                Ok(room) => return Ok(room),
                Err(refusal) if start.elapsed() > ROOM => bail!(refusal),
                Err(_) => std::thread::sleep(TICK),
            }
        }
    }

    /// Reads the tables. Returns the threads that have ended only once.
    fn take_out(
        &mut self,
        stopped_ns: u64,
        stacks: &HashMap<u32, Vec<u64>>,
    ) -> Result<(Snapshot, usize)> {
        let before = self.session.events().ended.len();
        let mut snapshot = self.session.snapshot(stopped_ns, stacks)?;
        let mut events = self.session.events_mut();
        debug_assert_eq!(before, events.ended.len()); // no events were received meanwhile
        events.ended.clear();
        events.ended_unlisted.clear();
        if let Some(held) = &events.forwarded {
            tables::add(&mut snapshot.lost.stacks, held.dropped);
        }
        Ok((snapshot, before))
    }

    fn look_up(&mut self, snapshot: &Snapshot) {
        let places = &mut self.places;
        // Kept no longer than needed: the kernel's symbols take memory.
        let (mut passing, kept) = (None, &self.symbols);
        for address in wire::addresses(snapshot) {
            places.entry(address).or_insert_with(|| {
                let symbols = kept.as_ref();
                let symbols =
                    symbols.unwrap_or_else(|| passing.get_or_insert_with(Symbols::default));
                FrameText::of(symbols.kernel(address))
            });
        }
    }
}
