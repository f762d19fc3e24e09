// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches records from the broker, and what they refer to.

use std::cell::Ref;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{bail, ensure, Result};

use super::fetched::NEVER;
use super::progress::Gone;
use super::RemoteSession;
use crate::broker::protocol::{FrameText, Reply, Request};
use crate::clock::monotonic_ns;
use crate::deadlock::tasks::threads;
use crate::deadlock::Wait;
use crate::kept::{InFlight, Kept};
use crate::session::{owner_of, Events};
use crate::stacks::of_sleeper;
use crate::symbols::Symbols;
use crate::tables::{self, types};
use crate::waited::Waits;

/// The most threads whose place in the program is looked up.
const MAX_STACKS: usize = 1024;

/// What is missing in the results.
#[derive(Debug, Clone, Default)]
pub(crate) struct Incomplete {
    pub records: u64,
    pub sleeps: u64,
    pub stacks: u64,
    pub threads: u64,
    pub probe_misses: u64,
    /// Threads that were monitored until they got other rights than the client's.
    pub left: Vec<u32>,
}

impl RemoteSession {
    /// The oldest records that were not fetched, and whether there are more.
    pub(crate) fn take_records(&mut self) -> Result<(Vec<Kept>, bool)> {
        if self.gone.is_some() {
            return Ok((Vec::new(), false));
        }
        match self.ask_for_records() {
            Ok(records) => Ok(records),
            Err(error) => {
                self.gone = Some(Gone::because(&error, self.patience));
                Ok((Vec::new(), false))
            }
        }
    }

    fn ask_for_records(&mut self) -> Result<(Vec<Kept>, bool)> {
        let Reply::Records {
            parts,
            lost_calls,
            lost_sleeps,
            is_more,
        } = self.ask(&Request::Records)?
        else {
            bail!("its answer is out of turn");
        };
        self.fetched.lost = (lost_calls, lost_sleeps);
        if !parts.is_empty() {
            // What the records refer to was seen before them.
            self.take_all()?;
        }
        let parts = parts.iter().map(|part| part.kept()).collect();
        Ok((parts, is_more))
    }

    /// Counts what was lost so far, before a new session begins.
    pub(super) fn begin_again(&mut self) {
        let fetched = &mut self.fetched;
        let (calls, sleeps) = std::mem::take(&mut fetched.lost);
        fetched.lost_before.0 += calls;
        fetched.lost_before.1 += sleeps;
    }

    /// How often the broker ended, or did not answer any more.
    pub(crate) fn interruptions(&self) -> u64 {
        self.gaps.len() as u64 + u64::from(self.gone.is_some())
    }

    /// What is missing in the results so far.
    pub(crate) fn incomplete(&self) -> Incomplete {
        let (fetched, events) = (&self.fetched, self.events.borrow());
        let has_left = |thread: &&types::thread| thread.flags & tables::THREAD_LEFT != 0;
        let mut sums = Incomplete {
            records: fetched.lost.0 + fetched.lost_before.0,
            sleeps: fetched.lost.1 + fetched.lost_before.1,
            stacks: events.stacks.borrow().lost,
            left: events
                .ended
                .iter()
                .filter(has_left)
                .map(|thread| thread.tid)
                .collect(),
            ..Incomplete::default()
        };
        let last = self.checkpoint.as_ref().map(|last| &last.snapshot);
        for snapshot in last.into_iter().chain(&self.past) {
            sums.records += snapshot.lost.records;
            sums.stacks += snapshot.lost.stacks;
            sums.threads += snapshot.lost.threads;
            sums.probe_misses += snapshot.probe_misses;
        }
        sums
    }

    /// What has been received.
    pub(crate) fn events(&self) -> Ref<'_, Events> {
        self.events.borrow()
    }

    pub(crate) fn waited(&self) -> &Waits {
        &self.waited
    }

    /// The symbols that know the numbers of [`RemoteSession::kernel_stack`].
    pub(crate) fn symbols(&self) -> Rc<Symbols> {
        Rc::clone(&self.fetched.symbols)
    }

    /// The kernel stack of that name, with numbers for its places.
    pub(crate) fn kernel_stack(&self, name: u64) -> Option<types::kernel_stack> {
        if self.gone.is_some() {
            return None;
        }
        let reply = self.ask(&Request::Place { stack: name }).ok()?;
        let Reply::Place { frames, args } = reply else {
            return None;
        };
        let mut stack = types::kernel_stack {
            has_args: args.is_some().into(),
            args: args.unwrap_or_default(),
            ..types::kernel_stack::default()
        };
        for (to, place) in stack.frames.iter_mut().zip(frames) {
            *to = self.fetched.number(place);
        }
        Some(stack)
    }

    /// What the probes saw of a resource.
    pub(crate) fn resource_row(&self, key: &types::resource_key) -> Option<types::resource_row> {
        let is_named = [tables::RESOURCE_FD, tables::RESOURCE_LOCK].contains(&key.resource.kind);
        if self.gone.is_some() || !is_named {
            return None;
        }
        let key = key.into();
        match self.ask(&Request::Named { key }).ok()? {
            Reply::Named(row) => Some((&*row).into()),
            _ => None,
        }
    }

    /// Reads where in their programs threads are asleep, and who holds what they wait for.
    pub(crate) fn look_at_sleepers(&mut self) {
        let living = self.living();
        let tids = living
            .iter()
            .flat_map(|pid| threads(*pid).into_iter().map(|tid| (*pid, tid)));
        let events = self.events.borrow();
        for (pid, tid) in tids.take(MAX_STACKS) {
            let now_ns = monotonic_ns();
            let held = Wait::of(tid).filter(Wait::is_for_lock);
            self.fetched.held.extend(held.map(|held| (tid, held)));
            // The probes' names are hashes; none of these is likely to be one.
            let name = u64::MAX - u64::from(tid);
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = of_sleeper(pid, tid, name, &mut processes) else {
                continue;
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
            self.fetched.user_stacks.insert(tid, (name, now_ns));
        }
    }

    /// Stops monitoring. What was seen until then can still be fetched.
    pub(crate) fn stop(&mut self) {
        if self.gone.is_some() {
            return;
        }
        self.next_checkpoint = Instant::now() + NEVER;
        let stopped = self.ask(&Request::Stop).and_then(|reply| {
            ensure!(
                matches!(reply, Reply::Stopped { .. }),
                "its answer is out of turn"
            );
            Ok(())
        });
        if let Err(error) = stopped {
            self.gone = Some(Gone::because(&error, self.patience));
        }
    }

    /// The calls that had not returned at the stop, if the last results were fetched.
    pub(crate) fn in_flight(&self) -> InFlight {
        let last = match (&self.checkpoint, &self.gone) {
            (Some(last), None) => last,
            _ => return InFlight::default(),
        };
        let places: HashMap<u64, &FrameText> =
            last.frames.iter().map(|(at, text)| (*at, text)).collect();
        let snapshot = &last.snapshot;
        let mut in_flight = InFlight {
            stopped_ns: snapshot.stopped_ns,
            waits: snapshot.open_waits.iter().cloned().collect(),
            ..InFlight::default()
        };
        for (at, stack) in &snapshot.open_calls {
            let Some(thread) = snapshot.threads.get(*at) else {
                continue;
            };
            in_flight.threads.push(*thread);
            if let Some(held) = self.fetched.held.get(&thread.tid) {
                let wait = in_flight.waits.entry(thread.index).or_default();
                if wait.owner.tid != held.holder {
                    wait.owner = owner_of(held);
                }
                wait.ownable |= 1;
            }
            let mut task = last.beside.tasks.get(&thread.index).copied();
            if let Some(task) = &mut task {
                for (to, number) in task.frames.iter_mut().zip(stack) {
                    let place = places.get(number).copied();
                    *to = place.map_or(0, |place| self.fetched.number(place.clone()));
                    task.depth += 1;
                }
            }
            in_flight
                .tasks
                .extend(task.map(|task| (thread.index, task)));
            let stack = self.fetched.user_stacks.get(&thread.tid);
            // Read in this call, not in an earlier one.
            let stack = stack.filter(|(_, at_ns)| thread.begin_ns <= *at_ns);
            in_flight
                .user_stacks
                .extend(stack.map(|(name, _)| (thread.index, *name)));
        }
        in_flight
    }
}
