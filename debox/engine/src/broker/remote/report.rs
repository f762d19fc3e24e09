// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches a session's results, and makes the report of them.

use std::os::fd::AsFd;

use anyhow::{bail, ensure, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::MsgFlags;

use super::progress::{Checkpoint, Gone};
use super::RemoteSession;
use crate::broker::channel;
use crate::broker::protocol::{Reply, Request, BULK};
use crate::broker::wire::{self, Received};
use crate::clock::monotonic_ns;
use crate::collect::{Outcome, Snapshot};
use crate::explain::Explainer;
use crate::report::Report;
use crate::symbols::{Frame, Symbols};
use crate::tables;

/// How long the end of a session is waited for.
const LEAVE_TAKING_MS: u16 = 2000;

/// The largest report that is accepted.
const REPORT_MAX: u64 = 256 << 20;

impl RemoteSession {
    /// Fetches the results so far.
    pub(super) fn fetch(&mut self, is_last: bool) -> Result<()> {
        let bytes = self.ask_for_all(&Request::Report { is_last })?;
        let received = wire::decode(&bytes).context("its report is not understood")?;
        self.keep(received)
    }

    /// Asks for what does not fit into one reply.
    pub(super) fn ask_for_all(&self, request: &Request) -> Result<Vec<u8>> {
        let Reply::Report { size } = self.ask(request)? else {
            bail!("its answer is out of turn");
        };
        ensure!(size <= REPORT_MAX, "its report is too large");
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let packet = channel::receive(self.connection.as_fd(), BULK, MsgFlags::empty())?;
            bytes.extend(packet.bytes);
        }
        Ok(bytes)
    }

    fn keep(&mut self, received: Received) -> Result<()> {
        let Received {
            mut snapshot,
            ended,
            mut frames,
            beside,
        } = received;
        // Each session numbers its places from 1.
        let base = (self.gaps.len() as u64) << 32;
        let stacks = snapshot.stacks.kernel.values_mut();
        let open = snapshot.open_calls.iter_mut().map(|(_, stack)| stack);
        for number in stacks.chain(open).flatten() {
            *number = number.wrapping_add(base);
        }
        for (number, _) in &mut frames {
            *number = number.wrapping_add(base);
        }
        let mut threads = std::mem::take(&mut snapshot.threads);
        let living = threads.split_off(ended + usize::from(snapshot.unlisted.is_some()));
        for (_, at) in snapshot
            .open_calls
            .iter_mut()
            .map(|(at, stack)| (stack, at))
        {
            *at = at
                .checked_sub(threads.len())
                .context("its report is not understood")?;
        }
        let unlisted = threads.split_off(ended);
        let events = self.events.get_mut();
        for thread in &threads {
            events.add_ended(thread);
        }
        for sum in &unlisted {
            events.add_unlisted(sum);
        }
        snapshot.threads = living;
        snapshot.unlisted = None;
        if let Some(tap) = &self.tap {
            let refused = tap.rows.add_to(&mut snapshot.rows)?;
            tables::add(&mut snapshot.refused, refused);
        }
        self.checkpoint = Some(Checkpoint {
            at: self.started.elapsed(),
            snapshot,
            frames,
            ended: events.ended.len(),
            ended_unlisted: events.ended_unlisted.clone(),
            beside,
        });
        Ok(())
    }

    /// Stops monitoring and reports.
    pub fn finish(mut self, outcome: Outcome) -> Result<Report> {
        self.look_before_stop();
        self.fetch_last();
        self.report(outcome)
    }

    /// Reads of the processes what cannot be read when they are no longer monitored.
    pub(crate) fn look_before_stop(&mut self) {
        self.events.get_mut().titles.look_at_all();
        self.waited = self.waits();
    }

    /// Fetches the last results; monitoring stops. If the broker does not give them, the report says so.
    pub(crate) fn fetch_last(&mut self) {
        if self.gone.is_some() {
            return;
        }
        let fetched = self.take_all().and_then(|()| self.fetch(true));
        if fetched.is_ok() {
            self.wait_for_its_end();
        }
        let patience = self.patience;
        self.gone = fetched.err().map(|error| Gone::because(&error, patience));
    }

    /// Makes the report of what was fetched.
    pub(crate) fn report(mut self, outcome: Outcome) -> Result<Report> {
        let mut notes = vec![
            "Measured through the broker: of other users' tasks it shows only that there were \
             some, and waiters for locks are not counted."
                .to_string(),
        ];
        if self.wants_samples {
            notes.push(
                "The program's CPU use was not sampled: the broker takes no samples.".to_string(),
            );
        }
        let incomplete = self.what_is_missing();
        let has_gaps = !self.gaps.is_empty();
        notes.extend(self.events.get_mut().titles.unseen());
        notes.extend(self.left_out.notes());
        notes.append(&mut self.gaps);
        notes.extend(incomplete.clone());
        let ran = self.started.elapsed();
        let (last, past) = (self.settle(), self.past.take());
        let mut snapshot = match (last, past) {
            (Some(mut last), Some(past)) => {
                last.add_earlier(past);
                last
            }
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => {
                let now = monotonic_ns();
                let empty = Snapshot::empty(self.options.tap, self.options.detail, now);
                Snapshot {
                    started_ns: now.saturating_sub(ran.as_nanos() as u64),
                    ..empty
                }
            }
        };
        snapshot.notes = notes;
        snapshot.incomplete = incomplete;
        snapshot.deadlocks = std::mem::take(&mut self.deadlocks);
        snapshot.waited = std::mem::take(&mut self.waited);
        let symbols = Symbols::default();
        for (number, text) in self.places {
            symbols.know(number, Frame::from(text));
        }
        let events = self.events.borrow();
        let explainer = Explainer::with_symbols(
            &snapshot.stacks,
            &events.processes,
            &events.stacks,
            symbols.into(),
        );
        let mut report = snapshot.report(outcome, &explainer, &events.resources);
        report.processes = events.titles.list();
        let (started_ns, detail) = (snapshot.started_ns, self.options.detail);
        report.triggers = self
            .listed
            .report(&self.trigger_counts, &explainer, started_ns, detail);
        if has_gaps {
            // The first thread in the results may have been born after a gap.
            report.duration_ns = report.duration_ns.max(ran.as_nanos() as u64);
        }
        Ok(report)
    }

    /// Waits until the broker has taken back what it gave, so that the user's next run can get it.
    fn wait_for_its_end(&self) {
        let mut polled = [PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::from(LEAVE_TAKING_MS));
    }

    /// The session's results, as far as they were fetched, with all its threads.
    pub(super) fn settle(&mut self) -> Option<Snapshot> {
        let Checkpoint {
            mut snapshot,
            frames,
            ended,
            mut ended_unlisted,
            beside,
            ..
        } = self.checkpoint.take()?;
        self.places.extend(frames);
        for (sum, more) in self.trigger_counts.iter_mut().zip(&beside.triggers) {
            sum.add(more);
        }
        let mut threads = std::mem::take(&mut self.events.get_mut().ended);
        threads.truncate(ended);
        if !ended_unlisted.is_empty() {
            snapshot.unlisted = Some(threads.len());
            threads.append(&mut ended_unlisted);
        }
        for (at, _) in &mut snapshot.open_calls {
            *at += threads.len();
        }
        threads.append(&mut snapshot.threads);
        snapshot.threads = threads;
        snapshot.refuse_impossible();
        Some(snapshot)
    }

    fn what_is_missing(&self) -> Option<String> {
        let gone = self.gone.as_ref()?;
        let ran = self.started.elapsed().as_secs_f64();
        let why = &gone.how;
        Some(match &self.checkpoint {
            None if self.past.is_some() => {
                format!("{why}, once more and before anything else was handed over.")
            }
            None => {
                format!("{why}, before any results were received: nothing is known about the run.")
            }
            Some(checkpoint) => format!(
                "{why}: what happened from {:.1} s to {ran:.1} s is missing.",
                checkpoint.at.as_secs_f64()
            ),
        })
    }
}
