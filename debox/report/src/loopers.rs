// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sums from which event loops are recognized, and their waits for other things than their events.

use debox_model::loops::{EventWait, Own, Serves, POLLS_MIN};
use rustc_hash::FxHashMap;

use crate::names::Name;

/// Instances of one thread, and kinds of its waits, at most.
const INSTANCES_MAX: usize = 16;
const KINDS_MAX: usize = 64;
/// From this length on, a turn is long.
pub const LONG_TURN_NS: u64 = 10_000_000;

/// What a call says of whether its thread is a loop, and whom it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Events { wait: EventWait, must_sleep: bool },
    Accepts,
    Receives,
    Sends,
    Other,
}

impl CallKind {
    pub fn of(call: &str) -> CallKind {
        match call {
            "accept" | "accept4" => CallKind::Accepts,
            "read" | "readv" | "recvfrom" | "recvmsg" | "recvmmsg" => CallKind::Receives,
            "write" | "writev" | "sendto" | "sendmsg" | "sendmmsg" => CallKind::Sends,
            _ => match EventWait::of(call, true, true) {
                Some(wait) => CallKind::Events {
                    wait,
                    must_sleep: EventWait::of(call, true, false).is_none(),
                },
                None => CallKind::Other,
            },
        }
    }

    /// The same as [`EventWait::of`], without the call's name.
    #[inline]
    pub fn wait(self, is_main: bool, has_slept: bool) -> Option<EventWait> {
        let CallKind::Events { wait, must_sleep } = self else {
            return None;
        };
        let is_it = (has_slept || !must_sleep) && (is_main || wait != EventWait::Polled);
        is_it.then_some(wait)
    }
}

/// Waits of a thread of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    pub call: Name,
    pub label: Name,
    /// Of waits for events: the first argument.
    pub instance: Option<u64>,
    /// On a futex that no thread is known to hold.
    pub is_free: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct KindSums {
    pub count: u64,
    pub blocked: u64,
    /// Of the longest.
    pub longest: u64,
    pub caller: Name,
    pub stack: Name,
    pub resource: Name,
}

/// A stretch from the end of one wait for events to the beginning of the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    pub ns: u64,
    pub begin: i64,
}

/// What is known of one thread.
#[derive(Debug, Clone, Default)]
pub struct Looper {
    /// Instances at which it waited, with the number of waits.
    pub instances: Vec<(u64, u64)>,
    pub polls: u64,
    accepts: bool,
    /// The descriptors that it received from and sent to, by their last six bits.
    received: u64,
    sent: u64,
    pub waits: FxHashMap<Kind, KindSums>,
    pub longest_turn: Turn,
    /// Turns of [`LONG_TURN_NS`] or more.
    pub long_turns: u64,
    /// The group in which the last wait for events ended, and when.
    last: Option<(u32, i64)>,
}

impl Looper {
    /// Takes in a call.
    pub fn see(&mut self, kind: CallKind, descriptor: u64) {
        let bit = 1u64 << (descriptor % 64);
        match kind {
            CallKind::Accepts => self.accepts = true,
            CallKind::Receives => self.received |= bit,
            CallKind::Sends => self.sent |= bit,
            CallKind::Events { .. } | CallKind::Other => {}
        }
    }

    /// Takes in a wait for events. `group`: rows are in order within one.
    pub fn see_events(&mut self, wait: EventWait, at: u64, group: u32, begin: i64, end: i64) {
        match wait {
            EventWait::Polled => self.polls += 1,
            EventWait::AtInstance => self.add_instance(at, 1),
        }
        if !self.own().take_in(wait, at) {
            return;
        }
        if let Some((_, last)) = self.last.filter(|(of, _)| *of == group) {
            let turn = Turn {
                ns: begin.saturating_sub(last).max(0) as u64,
                begin: last,
            };
            self.longest_turn = self.longest_turn.max(turn);
            self.long_turns += u64::from(turn.ns >= LONG_TURN_NS);
        }
        self.last = Some((group, end));
    }

    fn add_instance(&mut self, at: u64, more: u64) {
        let known = self.instances.iter().position(|(one, _)| *one == at);
        match known {
            Some(known) => self.instances[known].1 += more,
            None if self.instances.len() < INSTANCES_MAX => self.instances.push((at, more)),
            None => {}
        }
    }

    pub fn may_be_loop(&self) -> bool {
        !self.instances.is_empty() || self.polls > 0
    }

    pub fn wait(&mut self, kind: Kind, add: &KindSums) {
        if self.waits.len() >= KINDS_MAX && !self.waits.contains_key(&kind) {
            return;
        }
        self.waits.entry(kind).or_default().merge(add);
    }

    /// Where it waits for its events.
    pub fn own(&self) -> Own {
        let mut own = Own::default();
        for (instance, _) in &self.instances {
            own.take_in_late(EventWait::AtInstance, *instance);
        }
        own
    }

    /// Whether it is a loop that keeps several clients waiting when it waits for something else.
    pub fn is_loop(&self) -> bool {
        let both = (self.received & self.sent).count_ones();
        let serves = Serves::of(self.accepts, both as usize);
        let waits = !self.instances.is_empty() || self.polls >= POLLS_MIN;
        waits && serves == Serves::Several
    }

    pub fn merge(&mut self, other: &Looper) {
        for (instance, more) in &other.instances {
            self.add_instance(*instance, *more);
        }
        self.polls += other.polls;
        self.accepts |= other.accepts;
        self.received |= other.received;
        self.sent |= other.sent;
        let mut waits: Vec<_> = other.waits.iter().collect();
        waits.sort_unstable_by_key(|(kind, _)| **kind);
        for (kind, sums) in waits {
            self.wait(*kind, sums);
        }
        self.longest_turn = self.longest_turn.max(other.longest_turn);
        self.long_turns += other.long_turns;
    }
}

impl KindSums {
    fn merge(&mut self, add: &KindSums) {
        self.count += add.count;
        self.blocked = self.blocked.saturating_add(add.blocked);
        if (add.longest, add.caller) >= (self.longest, self.caller) {
            self.longest = add.longest;
            self.caller = add.caller;
            self.stack = add.stack;
            self.resource = add.resource;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_or_talks_to_several_serves_several() {
        let mut one = Looper::default();
        one.see_events(EventWait::AtInstance, 4, 0, 0, 10);
        one.see(CallKind::Receives, 9);
        one.see(CallKind::Sends, 9);
        // What it only reads, such as a file, is no client.
        one.see(CallKind::Receives, 10);
        assert!(!one.is_loop());
        let mut other = Looper::default();
        other.see(CallKind::Receives, 11);
        other.see(CallKind::Sends, 11);
        assert!(!other.is_loop(), "it does not wait for events");
        one.merge(&other);
        assert!(one.is_loop());
        other.see(CallKind::Accepts, 3);
        for _ in 0..POLLS_MIN {
            assert!(!other.is_loop());
            other.see_events(EventWait::Polled, 0, 0, 0, 0);
        }
        assert!(other.is_loop());
    }

    #[test]
    fn kinds_of_calls_are_those_of_the_rule() {
        for call in [
            "epoll_wait",
            "io_uring_enter",
            "select",
            "poll",
            "read",
            "openat",
        ] {
            for (is_main, has_slept) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let kind = CallKind::of(call).wait(is_main, has_slept);
                assert_eq!(kind, EventWait::of(call, is_main, has_slept), "{call}");
            }
        }
    }

    #[test]
    fn a_turn_lasts_until_the_next_wait_at_the_own_instance() {
        let mut looper = Looper::default();
        let mut wait = |at, group, begin, end| {
            looper.see_events(EventWait::AtInstance, at, group, begin, end);
            looper.longest_turn
        };
        assert_eq!(wait(4, 0, 0, 10), Turn::default());
        assert_eq!(wait(9, 0, 20, 300), Turn::default(), "an inner loop");
        let turn = Turn { ns: 390, begin: 10 };
        assert_eq!(wait(4, 0, 400, 500), turn);
        assert_eq!(
            wait(4, 7, 9_000, 9_500),
            turn,
            "what came between is not known"
        );
    }

    #[test]
    fn long_turns_are_counted() {
        let mut looper = Looper::default();
        let long = LONG_TURN_NS as i64;
        let mut end = 0;
        for turn in [long, long - 1, 3 * long] {
            looper.see_events(EventWait::AtInstance, 4, 0, end, end + 10);
            end += 10 + turn;
        }
        looper.see_events(EventWait::AtInstance, 4, 0, end, end + 10);
        assert_eq!(looper.long_turns, 2);
        let other = looper.clone();
        looper.merge(&other);
        assert_eq!(looper.long_turns, 4);
    }
}
