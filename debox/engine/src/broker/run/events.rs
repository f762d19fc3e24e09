// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the probes have seen of the client's processes, on its way to the client, and the client's answers.

use std::time::Instant;

use anyhow::{Context, Result};

use super::Run;
use crate::broker::probe_data::{Shape, ShapeKey, Stack};
use crate::broker::protocol::{Reply, BATCH};
use crate::broker::record_data::FiredCall;
use crate::tables::types;

impl Run {
    /// Whether there is something that has to be looked up while it still exists.
    fn has_news(&mut self) -> bool {
        let fired = self.session.fired_for_others();
        if fired.is_some_and(|fired| !fired.is_empty()) {
            return true;
        }
        let events = self.session.events();
        let held = events.forwarded.as_ref();
        !events.call_sites.is_empty()
            || held.is_some_and(|held| !(held.resources.is_empty() && held.stacks.is_empty()))
    }

    /// Whether the client waits for events and is due an answer.
    pub(super) fn owes_news(&mut self) -> bool {
        let until = self.has_asked_until;
        until.is_some_and(|until| self.has_news() || Instant::now() >= until)
    }

    /// Alternates between a user stack, which is too large to share a reply, and other events.
    pub(super) fn news(&mut self) -> Reply {
        self.is_stack_next = !self.is_stack_next;
        let ask = self.is_stack_next.then(|| {
            let mut events = self.session.events_mut();
            Stack::of(&events.forwarded.as_mut()?.stacks.pop_front()?)
        });
        match ask.flatten() {
            Some(stack) => Reply::Stack(Box::new(stack)),
            None => self.events(),
        }
    }

    fn events(&mut self) -> Reply {
        fn batch<'a, T, Shown: From<&'a T>>(from: &'a [T]) -> Vec<Shown> {
            from.iter().take(BATCH).map(Shown::from).collect()
        }
        fn drop_batch<T>(from: &mut Vec<T>) {
            from.drain(..from.len().min(BATCH));
        }
        let mut held = self.session.events_mut();
        let events = &mut *held;
        let ended = batch(&events.ended);
        drop_batch(&mut events.ended);
        let call_sites = batch(&events.call_sites);
        drop_batch(&mut events.call_sites);
        let mut is_more = !(events.ended.is_empty() && events.call_sites.is_empty());
        let (mut resources, mut titles) = (Vec::new(), Vec::new());
        if let Some(forwarded) = &mut events.forwarded {
            resources = batch(&forwarded.resources);
            drop_batch(&mut forwarded.resources);
            titles = batch(&forwarded.titles);
            drop_batch(&mut forwarded.titles);
            is_more |= !(forwarded.resources.is_empty() && forwarded.stacks.is_empty());
            is_more |= !forwarded.titles.is_empty();
        }
        drop(held);
        let mut fired = Vec::new();
        if let Some(waiting) = self.session.fired_for_others() {
            let taken = waiting.drain(..waiting.len().min(BATCH));
            fired = taken.map(|call| FiredCall::from(&call)).collect();
            is_more |= !waiting.is_empty();
        }
        Reply::Events {
            ended,
            call_sites,
            resources,
            titles,
            fired,
            is_more,
        }
    }

    /// Stores where the client's program keeps a return address. It affects no other client.
    pub(super) fn learn(&self, tgid: u32, ip: u64, offset: i32, rule: u32) {
        // Best effort, as in a session of one's own.
        let value = types::wrapper { offset, rule };
        self.session.learn_wrapper(tgid, ip, value);
    }

    /// Stores how the client's own stacks are recognised. Errors in it misname only these.
    pub(super) fn learn_stack(&self, key: &ShapeKey, shape: &Shape) -> Result<()> {
        let key = types::user_shape_key::from(key);
        let shape = shape
            .for_probes()
            .context("the shape of a user stack is not understood")?;
        self.session.learn_shape(&key, &shape);
        Ok(())
    }
}
