// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that rest, threads that are stuck, and threads that may be either.
//!
//! [`debox_model::rest`] decides what a wait is for. A thread rests if nearly all of its time in calls is spent in
//! waits for work. It is stuck if nearly all of it is spent in waits for something that is held, and the last of these
//! waits has not ended. A thread whose waits look like waits for work, but none of them has ended, may be either.
//! Each thread is judged by itself: of threads with one name, some may rest and others not.

pub use debox_model::rest::FUTEX;
use debox_model::rest::{For, Waits, MEAN_MIN_NS};
use debox_model::runtimes::Purpose;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::aggregate::{Aggregate, WaitSums};
use crate::names::NONE;
use crate::report::{Rest, SlowCall, Thread, Wait};
use crate::wait_key::WaitKey;

/// The part of a thread's time in calls that counts as nearly all.
const PART_MIN: f64 = 0.9;

/// Process and thread.
pub type ThreadId = (u32, u32);

#[derive(Debug, Default)]
pub struct Rests {
    /// The threads that rest, are stuck, or may be either.
    threads: FxHashMap<ThreadId, Rest>,
    /// Threads that rest between other waits.
    between: FxHashSet<ThreadId>,
}

impl Rests {
    pub fn of(&self, thread: ThreadId) -> Option<Rest> {
        self.threads.get(&thread).copied()
    }

    /// Whether the findings leave out what a thread waits for: it rests, or whether it rests is unknown.
    pub fn are_aside(&self, thread: ThreadId) -> bool {
        let rest = self.of(thread);
        matches!(rest, Some(Rest::AtRest | Rest::CannotTell)) || self.between.contains(&thread)
    }

    /// The threads some of whose waits the findings leave out.
    pub fn aside(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let threads = self.threads.keys().chain(&self.between).copied();
        threads.filter(|thread| self.are_aside(*thread))
    }
}

#[cfg(test)]
impl FromIterator<(ThreadId, Rest)> for Rests {
    fn from_iter<T: IntoIterator<Item = (ThreadId, Rest)>>(threads: T) -> Rests {
        Rests {
            threads: threads.into_iter().collect(),
            ..Rests::default()
        }
    }
}

/// A thread's waits on futexes that no thread holds, and its waits for what can be held.
#[derive(Default)]
struct Sums {
    free: Waits<'static>,
    /// Of these, waits of which the program's functions say that they are for work.
    work_ns: u64,
    /// Waits for what a known thread holds.
    held_ns: u64,
    held_open: u64,
    /// Waits for what looks like a lock whose holder is unknown.
    unknown_ns: u64,
    /// Waits of which the program's functions say that they are not for work.
    other_ns: u64,
}

impl Sums {
    /// Adds waits of a thread, each for something that is held or on a futex.
    fn add(&mut self, key: &WaitKey, wait: &WaitSums) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        if key.owner != NONE {
            add(&mut self.held_ns, wait.blocked);
            add(&mut self.held_open, wait.open);
        } else if !key.purpose.may_be_work() {
            add(&mut self.other_ns, wait.blocked);
        } else if key.certainty != NONE {
            add(&mut self.unknown_ns, wait.blocked);
        } else {
            if key.purpose == Purpose::Work {
                add(&mut self.work_ns, wait.blocked);
            }
            (self.free.label, self.free.class) = (FUTEX, "lock");
            add(&mut self.free.count, wait.count);
            add(&mut self.free.open, wait.open);
            add(&mut self.free.blocked_ns, wait.blocked);
        }
    }

    /// `active`: the thread's time in calls, without idle waits.
    fn rest(&self, active: u64) -> Option<Rest> {
        let is_nearly_all = |ns: u64| active > 0 && ns as f64 >= active as f64 * PART_MIN;
        if is_nearly_all(self.held_ns) && self.held_open > 0 {
            return Some(Rest::Stuck);
        }
        // The word of a condition variable occasionally has the value of a contended lock; a lock's word always does.
        let on_futexes = self.free.blocked_ns.saturating_add(self.unknown_ns);
        if !is_nearly_all(on_futexes) {
            return None;
        }
        match self.free.are_for() {
            For::Work if self.free.blocked_ns >= self.unknown_ns => Some(Rest::AtRest),
            For::Work | For::CannotTell => Some(Rest::CannotTell),
            For::Idle | For::Exchange | For::Other => None,
        }
    }

    /// Whether it rests when it does not wait for what is certainly no work: a connection's thread that waits for
    /// requests, and in some of them for a lock. A wait for work that has not ended is no question then: the thread
    /// has worked.
    fn rests_between(&self, active: u64) -> bool {
        let other = self.other_ns.saturating_add(self.held_ns);
        let is_for_work = self.work_ns > self.free.blocked_ns / 2;
        self.other_ns > 0
            && match self.rest(active.saturating_sub(other)) {
                Some(Rest::AtRest) => true,
                Some(Rest::CannotTell) => is_for_work,
                Some(Rest::Stuck) | None => false,
            }
    }
}

/// Judges all threads of the recording.
pub fn judge(sums: &Aggregate) -> Rests {
    let mut by_thread: FxHashMap<ThreadId, Sums> = FxHashMap::default();
    for (key, wait) in &sums.waits {
        if let Some(thread) = key.thread {
            by_thread.entry(thread).or_default().add(key, wait);
        }
    }
    let mut rests = Rests::default();
    for (tid, thread) in &sums.threads.sums {
        let id = (thread.pid, *tid);
        let active = thread.parts.wall.saturating_sub(thread.idle);
        let Some(waits) = by_thread.get(&id) else {
            continue;
        };
        if let Some(rest) = waits.rest(active) {
            rests.threads.insert(id, rest);
        } else if waits.rests_between(active) {
            rests.between.insert(id);
        }
    }
    rests
}

/// Whether these waits are ones that such a thread rests in.
pub fn is_rest(rests: &Rests, key: &WaitKey) -> bool {
    let is_free = key.owner == NONE && key.purpose.may_be_work();
    is_free && key.thread.is_some_and(|thread| rests.are_aside(thread))
}

/// Waits of these threads that ended, in another place than those where the thread and others of its name rest: a lock
/// that the program builds from a condition variable looks like this. The longest first.
pub fn elsewhere<'a>(waits: &'a [Wait], threads: &[Thread]) -> Vec<&'a Wait> {
    let resting = || waits.iter().filter(|wait| wait.is_rest);
    let is_elsewhere = |wait: &&Wait| {
        let is_same = |other: &&Wait| other.comm == wait.comm && other.is_main == wait.is_main;
        let mut others = resting().filter(|other| !std::ptr::eq(*other, *wait));
        let is_unique = !others.any(|other| is_same(&other) && other.caller == wait.caller);
        let mut usual = resting().filter(is_same);
        let is_small = usual.any(|other| other.blocked_ns / 2 >= wait.blocked_ns);
        let is_long = wait.blocked_ns / wait.count.max(1) >= MEAN_MIN_NS;
        let has_ended = wait.in_flight == 0 && wait.waker.starts_with("task ");
        let is_theirs = threads.iter().any(|thread| thread.tid == wait.tid);
        let is_one = !wait.many_threads && wait.caller.is_some() && is_theirs;
        is_one && is_unique && is_small && is_long && has_ended
    };
    let mut found: Vec<&Wait> = resting().filter(is_elsewhere).collect();
    found.sort_by_key(|wait| std::cmp::Reverse(wait.longest_ns));
    found
}

/// Whether the call is one that such threads rest in.
pub fn is_rest_call(call: &SlowCall, rests: &Rests) -> bool {
    let longest = call.sleeps.first();
    let slept = longest.is_some_and(|sleep| {
        sleep.label == FUTEX && sleep.blocked_ns as f64 >= call.budget.wall_ns as f64 * PART_MIN
    });
    slept && rests.are_aside((call.pid, call.tid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::ThreadSums;
    use crate::names::Names;
    use crate::parts::Parts;

    const SECOND: u64 = 1_000_000_000;
    const AT_REST: Option<Rest> = Some(Rest::AtRest);
    /// Who is known to hold what is waited for.
    const FREE: (bool, bool) = (false, false);
    const UNKNOWN: (bool, bool) = (true, false);
    const HELD: (bool, bool) = (true, true);

    /// A thread's waits: how held, how many, how many of them open, and their time.
    type Seen = (u32, (bool, bool), u64, u64, u64);

    /// Each thread lives for a second.
    fn judged(threads: &[u32], waits: &[Seen]) -> Vec<Option<Rest>> {
        let names = Names::default();
        let mut sums = Aggregate::new(0);
        for tid in threads {
            let thread = ThreadSums {
                pid: 1,
                comm: names.of("worker"),
                calls: 10,
                parts: Parts {
                    wall: SECOND,
                    ..Parts::default()
                },
                ..ThreadSums::default()
            };
            sums.threads.add(*tid, &thread);
        }
        for (tid, (is_lock, is_held), count, open, blocked) in waits {
            let maybe = |holds: &bool, text: &str| match holds {
                true => names.of(text),
                false => NONE,
            };
            let key = WaitKey {
                comm: names.of("worker"),
                is_main: false,
                call: names.of(FUTEX),
                label: names.of(FUTEX),
                resource: NONE,
                caller: NONE,
                certainty: maybe(is_lock, "exact"),
                owner: maybe(is_held, "holder"),
                doing: NONE,
                purpose: Purpose::Unknown,
                thread: Some((1, *tid)),
            };
            let wait = WaitSums {
                count: *count,
                open: *open,
                blocked: *blocked,
                tid: *tid,
                ..WaitSums::default()
            };
            sums.add_wait(key, &wait);
        }
        let rests = judge(&sums);
        let rest = |tid: &u32| rests.of((1, *tid));
        threads.iter().map(rest).collect()
    }

    #[test]
    fn a_worker_between_two_pieces_of_work_is_at_rest() {
        let waits = [(2, FREE, 4, 0, SECOND - 1000)];
        assert_eq!(judged(&[2, 3], &waits), [AT_REST, None]);
    }

    /// Three threads of a pool rest, and a fourth one with their name waits for a lock.
    #[test]
    fn threads_of_one_name_are_judged_one_by_one() {
        let mut waits: Vec<Seen> = (2..5)
            .map(|tid| (tid, FREE, 10, 0, SECOND - 1000))
            .collect();
        waits.push((5, HELD, 10, 0, SECOND - 1000));
        let expected = [AT_REST, AT_REST, AT_REST, None];
        assert_eq!(judged(&[2, 3, 4, 5], &waits), expected);
    }

    #[test]
    fn a_contended_lock_is_no_rest() {
        let one = |wait: Seen| judged(&[2], &[wait])[0];
        assert_eq!(one((2, HELD, 4, 0, SECOND - 1000)), None);
        assert_eq!(one((2, FREE, 4000, 0, SECOND - 1000)), None, "short waits");
        assert_eq!(one((2, FREE, 4, 0, SECOND / 2)), None, "it works, too");
        // A lock of a library that does not record its holder.
        assert_eq!(one((2, UNKNOWN, 4, 0, SECOND - 1000)), None);
    }

    #[test]
    fn a_wait_that_does_not_end_is_stuck_or_cannot_be_told() {
        let one = |wait: Seen| judged(&[2], &[wait])[0];
        assert_eq!(one((2, HELD, 1, 1, SECOND - 1000)), Some(Rest::Stuck));
        assert_eq!(one((2, FREE, 1, 1, SECOND - 1000)), Some(Rest::CannotTell));
    }

    /// A condition variable that counts its signals once passed the value of a contended lock.
    #[test]
    fn one_wait_that_looks_like_a_locks_is_no_lock() {
        let waits = [
            (2, UNKNOWN, 1, 0, SECOND / 4),
            (2, FREE, 5, 0, SECOND * 3 / 4 - 1000),
        ];
        assert_eq!(judged(&[2], &waits), [AT_REST]);
    }

    fn wait(tid: Option<u32>, caller: &str, count: u64, blocked_ns: u64) -> Wait {
        Wait {
            comm: "worker".into(),
            is_main: false,
            tid: tid.unwrap_or(2),
            many_threads: tid.is_none(),
            call: "futex".into(),
            label: "futex".into(),
            class: "lock".into(),
            resource: None,
            resources: 0,
            caller: Some(caller.into()),
            count,
            in_flight: 0,
            blocked_ns,
            longest_ns: blocked_ns,
            first_ns: 0,
            last_ns: blocked_ns,
            is_rest: true,
            is_lock: false,
            is_at_work: false,
            owner_certainty: None,
            owner_comm: None,
            owner_tid: None,
            many_owners: false,
            owner_doing: None,
            waker: "task server".into(),
            held_up_by: Vec::new(),
        }
    }

    /// A row lock of a database, which the threads of its connections rarely wait for.
    #[test]
    fn a_wait_in_another_place_is_found() {
        let thread = Thread {
            pid: 1,
            tid: 2,
            comm: "worker".into(),
            calls: 10,
            budget: crate::report::Budget::default(),
            user_cpu_ns: None,
            resting_ns: 0,
            at_rest: true,
            rest: AT_REST,
        };
        let waits = [
            wait(None, "next_request", 8, SECOND),
            wait(Some(2), "next_request", 1, SECOND * 6 / 10),
            wait(Some(2), "lock_row", 1, SECOND * 4 / 10),
            wait(Some(2), "short", 100, SECOND / 1000),
        ];
        let found = elsewhere(&waits, std::slice::from_ref(&thread));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].caller.as_deref(), Some("lock_row"));
        assert!(elsewhere(&waits[2..], &[thread]).is_empty());
        assert!(elsewhere(&waits, &[]).is_empty());
    }
}
