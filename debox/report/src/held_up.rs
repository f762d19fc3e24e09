// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who held up waits that other tasks ended. Threads in a line wake one another: the second waits for the first, the
//! third is woken by the second, and the waker of nearly every wait is a thread that had waited itself until then. Such
//! a waker is accountable only from the end of its own wait on; what came before belongs to its waker, and so on.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::names::{Name, Names, NONE};
use crate::report::HeldUpBy;
use crate::wait_key::WaitKey;

/// The waits that are kept, at most: the longest of the recording.
const KEPT: usize = 4096;
/// Wakers that are followed from one wait, at most. What is left belongs to the last of them.
const FOLLOWED: usize = 64;
/// Tasks that are named for one row, at most.
const NAMED: usize = 3;

/// A task, by its name and its number.
type Task = (Name, u32);

/// A wait that a task ended.
#[derive(Debug, Clone, Copy)]
pub struct Woken {
    /// Its place in the table of waits; it names the thread only where that decides whether the thread rests.
    pub key: WaitKey,
    /// What it waited for, the same for all that wait for it; NONE if that is unknown.
    pub line: Name,
    pub tid: u32,
    pub begin: i64,
    pub ns: u64,
    pub waker: Task,
}

impl Woken {
    fn end(&self) -> i64 {
        let ns = self.ns.min(i64::MAX as u64);
        self.begin.saturating_add(ns as i64)
    }

    /// The longest first; the order does not depend on which thread read the wait.
    fn rank(&self) -> (Reverse<u64>, i64, u32) {
        (Reverse(self.ns), self.begin, self.tid)
    }

    /// Whether both are in the same line: for the same thing, in the same call. If that thing is unknown, of threads of
    /// the same name.
    fn is_like(&self, other: &Woken) -> bool {
        let line = |of: &Woken| (of.key.call, of.key.label, of.line);
        let is_known = self.line != NONE || self.key.comm == other.key.comm;
        is_known && line(self) == line(other)
    }
}

/// The longest waits that tasks ended.
#[derive(Debug, Default)]
pub struct LongestWoken {
    kept: Vec<Woken>,
    /// Shorter ones are not among the longest.
    least: u64,
}

impl LongestWoken {
    #[inline]
    pub fn offer(&mut self, woken: Woken) {
        if woken.ns >= self.least && woken.ns > 0 {
            self.kept.push(woken);
            if self.kept.len() >= 2 * KEPT {
                self.shorten();
            }
        }
    }

    pub fn merge(&mut self, other: LongestWoken) {
        for woken in other.kept {
            self.offer(woken);
        }
    }

    fn shorten(&mut self) {
        if self.kept.len() > KEPT {
            self.kept.select_nth_unstable_by_key(KEPT, Woken::rank);
            self.kept.truncate(KEPT);
            let ns = self.kept.iter().map(|woken| woken.ns);
            self.least = ns.min().unwrap_or(0);
        }
    }

    /// The wakers of each wait that was kept, with their parts of its time.
    pub fn parts(&self) -> Vec<(&Woken, Vec<(Task, u64)>)> {
        let mut kept: Vec<&Woken> = self.kept.iter().collect();
        kept.sort_unstable_by_key(|woken| woken.rank());
        kept.truncate(KEPT);
        let mut of_threads: FxHashMap<u32, Vec<&Woken>> = FxHashMap::default();
        for woken in &kept {
            of_threads.entry(woken.tid).or_default().push(woken);
        }
        for waits in of_threads.values_mut() {
            waits.sort_unstable_by_key(|woken| woken.end());
        }
        let parts = kept.into_iter();
        parts
            .map(|woken| (woken, parts_of(woken, &of_threads)))
            .collect()
    }
}

fn parts_of(woken: &Woken, of_threads: &FxHashMap<u32, Vec<&Woken>>) -> Vec<(Task, u64)> {
    let mut parts = Vec::new();
    let (mut last, mut to) = (woken, woken.end());
    for _ in 0..FOLLOWED {
        let waits = of_threads.get(&last.waker.1).map_or(&[][..], Vec::as_slice);
        let before = &waits[..waits.partition_point(|own| own.end() < to)];
        let own = before
            .iter()
            .rev()
            .take_while(|own| own.end() > woken.begin)
            .find(|own| own.is_like(woken) && own.key.comm == last.waker.0);
        let Some(own) = own else { break };
        parts.push((last.waker, to.abs_diff(own.end())));
        (last, to) = (own, own.end());
    }
    parts.push((last.waker, to.abs_diff(woken.begin)));
    parts
}

/// The sums of one row of the table of waits.
#[derive(Debug, Default)]
pub struct HeldUp(FxHashMap<Task, (u64, u64)>);

impl HeldUp {
    pub fn add(&mut self, parts: &[(Task, u64)]) {
        let longest = parts.iter().map(|(_, ns)| *ns).max();
        for (task, ns) in parts {
            let sums = self.0.entry(*task).or_default();
            sums.0 = sums.0.saturating_add(*ns);
            sums.1 += u64::from(Some(*ns) == longest);
        }
    }

    pub fn most(&self, names: &Names) -> Vec<HeldUpBy> {
        let mut all: Vec<_> = self.0.iter().filter(|(_, (ns, _))| *ns > 0).collect();
        all.sort_unstable_by_key(|((comm, tid), (ns, _))| (Reverse(*ns), *tid, *comm));
        let most = all.into_iter().take(NAMED);
        let named = |((comm, tid), (ns, waits)): (&Task, &(u64, u64))| HeldUpBy {
            comm: names.get(*comm).to_string(),
            tid: *tid,
            ns: *ns,
            waits: *waits,
        };
        most.map(named).collect()
    }
}

/// The task that ended a wait, if one did. A task that ends its own wait, by a timer for example, is none.
pub fn waker(comm: Name, waker: Option<u32>, tid: u32) -> Option<Task> {
    let waker = waker.filter(|waker| *waker != tid && comm != NONE)?;
    Some((comm, waker))
}

#[cfg(test)]
mod tests {
    use debox_model::runtimes::Purpose;

    use super::*;

    fn key(call: Name) -> WaitKey {
        WaitKey {
            comm: 7,
            is_main: true,
            call,
            label: 2,
            resource: NONE,
            caller: NONE,
            certainty: NONE,
            owner: NONE,
            doing: NONE,
            purpose: Purpose::Unknown,
            thread: None,
        }
    }

    fn woken(tid: u32, begin: i64, end: i64, by: u32) -> Woken {
        Woken {
            key: key(1),
            line: NONE,
            tid,
            begin,
            ns: (end - begin) as u64,
            waker: (7, by),
        }
    }

    fn kept(waits: &[Woken]) -> LongestWoken {
        let mut kept = LongestWoken::default();
        waits.iter().for_each(|woken| kept.offer(*woken));
        kept
    }

    fn parts_by_tid(kept: &LongestWoken, tid: u32) -> Vec<(u32, u64)> {
        let parts = kept.parts().into_iter();
        let of_thread = parts.filter(|(woken, _)| woken.tid == tid);
        of_thread
            .flat_map(|(_, parts)| parts)
            .map(|((_, by), ns)| (by, ns))
            .collect()
    }

    /// Thread 1 has the lock; 2, 3 and 4 queue for it, and each has it for a moment.
    #[test]
    fn whoever_had_waited_itself_answers_only_for_the_time_after() {
        let line = kept(&[
            woken(2, 100, 2000, 1),
            woken(3, 110, 2010, 2),
            woken(4, 120, 2030, 3),
        ]);
        assert_eq!(parts_by_tid(&line, 2), [(1, 1900)]);
        assert_eq!(parts_by_tid(&line, 3), [(2, 10), (1, 1890)]);
        assert_eq!(parts_by_tid(&line, 4), [(3, 20), (2, 10), (1, 1880)]);
    }

    #[test]
    fn waits_for_something_else_before_and_in_other_calls_are_not_followed() {
        let mut other_call = woken(2, 0, 1500, 9);
        other_call.key = key(5);
        let before = woken(2, 0, 90, 8);
        let after = woken(2, 1990, 2500, 8);
        let line = kept(&[woken(3, 100, 2000, 2), other_call, before, after]);
        assert_eq!(parts_by_tid(&line, 3), [(2, 1900)]);
    }

    /// Two threads that wake each other in turn, and a wait that ended when another began.
    #[test]
    fn no_circle_is_followed_without_end_and_the_parts_are_the_whole() {
        let mut waits = vec![woken(9, 0, 100_000, 1)];
        for turn in 0..500 {
            let (one, other) = (1 + turn % 2, 1 + (turn + 1) % 2);
            let begin = i64::from(turn) * 200;
            waits.push(woken(one, begin, begin + 200, other));
        }
        let line = kept(&waits);
        for (woken, parts) in line.parts() {
            assert_eq!(parts.iter().map(|(_, ns)| ns).sum::<u64>(), woken.ns);
            assert!(parts.len() <= FOLLOWED + 1);
        }
    }

    #[test]
    fn the_longest_are_kept_whoever_read_them() {
        let all: Vec<Woken> = (0..5 * KEPT as i64)
            .map(|at| woken(1, at * 10, at * 10 + 1 + (at * 7919) % 5000, 2))
            .collect();
        let whole = kept(&all);
        let (mut one, mut other) = (LongestWoken::default(), LongestWoken::default());
        for (at, woken) in all.iter().enumerate() {
            [&mut one, &mut other][at % 2].offer(*woken);
        }
        one.merge(other);
        let ranks = |kept: &LongestWoken| {
            let parts = kept.parts().into_iter();
            parts.map(|(woken, _)| woken.rank()).collect::<Vec<_>>()
        };
        assert_eq!(ranks(&one).len(), KEPT);
        assert_eq!(ranks(&one), ranks(&whole));
    }

    #[test]
    fn a_thread_is_not_its_own_waker() {
        assert_eq!(waker(7, Some(5), 5), None);
        assert_eq!(waker(NONE, Some(5), 6), None);
        assert_eq!(waker(7, None, 6), None);
        assert_eq!(waker(7, Some(5), 6), Some((7, 5)));
    }
}
