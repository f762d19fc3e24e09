// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs take turns on a device that does not do more if it has many at once.
//!
//! A name that is not in memory takes several reads, one after the other. A disk that does one read at a time and has the reads of
//! many names before it brings all of these names late: each waits for a read of all others between its own. Two names after the
//! other two take as long for the last ones, and less for all others. Most devices do many reads at once, and on these turns would be
//! a loss: which it is, is measured, again and again ([`meter`]).

mod meter;
#[cfg(test)]
mod simulation;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meter::{Meter, SLOW};

/// A job that takes so much longer than others, and so long, does not keep the turn: a part of the device may hang.
const STUCK: u32 = 4;
const STUCK_AT_LEAST: Duration = Duration::from_millis(100);

/// With one turn alone the device has nothing to do from the end of a read until the helper has woken and asked for the next
/// one. That does not matter while few jobs wait, and each is done sooner; from so many on there are two turns.
const CROWD: usize = 2;
/// Pools of a device.
const LINES: usize = 2;

/// Of one device. Only helpers wait here.
pub struct Turns {
    state: Mutex<State>,
    /// A turn may be free.
    passed: Condvar,
    start: Instant,
    /// For those who must not wait for the state.
    are_taken: AtomicBool,
}

#[derive(Default)]
struct State {
    meter: Meter,
    running: Vec<Running>,
    /// Each with its pool, in the order in which they came.
    waiting: VecDeque<(usize, u64)>,
    /// The pool that had a turn last.
    last: usize,
    number: u64,
    /// In the pools of the device, as who came last has found it.
    queued: [usize; LINES],
    /// What a job took on average, lately.
    job_ns: u64,
}

struct Running {
    number: u64,
    since: u64,
    has_turn: bool,
    /// It does not count any more.
    is_stuck: bool,
}

/// A job at the device, until it is dropped.
pub struct Turn<'a> {
    turns: Option<&'a Turns>,
    number: u64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            state: Mutex::default(),
            passed: Condvar::new(),
            start: Instant::now(),
            are_taken: AtomicBool::new(false),
        }
    }
}

impl Turns {
    /// Waits until it is the caller's turn, if turns are taken now. `line`: its pool; `queued`: how many jobs wait there.
    pub fn wait(&self, line: usize, queued: usize) -> Turn<'_> {
        let mut state = self.lock();
        state.meter.comes(self.now(), queued);
        let turns = state.turns();
        state.queued[line] = queued;
        if state.turns() > turns {
            self.wake(&state);
        }
        state.number += 1;
        let number = state.number;
        state.waiting.push_back((line, number));
        loop {
            let now = self.now();
            let Some(until) = state.is_taken_until(number, now) else {
                break;
            };
            let timeout = Duration::from_nanos(until - now);
            let waited = self.passed.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.retain(|(_, waits)| *waits != number);
        state.last = line;
        state.begin(number, self.now());
        // The next one may be able to go on, too, and one that is stuck does not tell that others may.
        self.wake(&state);
        Turn {
            turns: Some(self),
            number,
        }
    }

    pub fn are_taken(&self) -> bool {
        self.are_taken.load(Ordering::Relaxed)
    }

    /// From now on, whatever is measured.
    #[cfg(test)]
    pub fn take_always(&self) {
        self.lock().meter = Meter::with_turns();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wake(&self, state: &State) {
        let takes_turns = state.meter.takes_turns();
        self.are_taken.store(takes_turns, Ordering::Relaxed);
        if !state.waiting.is_empty() {
            self.passed.notify_all();
        }
    }
}

impl State {
    /// `None`: it is this one's turn, or none are taken. Otherwise, when the job before is taken to be stuck.
    fn is_taken_until(&mut self, number: u64, now: u64) -> Option<u64> {
        let patience = self.patience();
        for job in &mut self.running {
            if !job.is_stuck && now >= job.since + patience {
                (job.is_stuck, job.has_turn) = (true, false);
                self.meter.ends(now, None);
            }
        }
        if !self.meter.takes_turns() {
            return None;
        }
        let working = || self.running.iter().filter(|job| !job.is_stuck);
        let holders = working().filter(|job| job.has_turn).count();
        // Beside those, one whose last read is under way.
        if holders >= self.turns() || working().count() > self.turns() {
            let oldest = working().map(|job| job.since).min().unwrap_or(now);
            return Some(oldest + patience);
        }
        match self.next() == Some(number) {
            true => None,
            // That one is about to go on.
            false => Some(now + patience),
        }
    }

    /// The first one of the pool that did not have the last turn, if one of it waits: a pool with more helpers has no more turns.
    fn next(&self) -> Option<u64> {
        let is_other = |waits: &&(usize, u64)| waits.0 != self.last;
        let found = self.waiting.iter().find(is_other);
        found.or(self.waiting.front()).map(|(_, number)| *number)
    }

    fn turns(&self) -> usize {
        match self.queued.iter().sum::<usize>() < CROWD {
            true => 1,
            false => 2,
        }
    }

    fn patience(&self) -> u64 {
        let least = STUCK_AT_LEAST.as_nanos() as u64;
        least.max(u64::from(STUCK) * self.job_ns)
    }

    fn begin(&mut self, number: u64, now: u64) {
        self.meter.begins();
        self.running.push(Running {
            number,
            since: now,
            has_turn: true,
            is_stuck: false,
        });
    }

    fn leave(&mut self, number: u64, now: u64) {
        let left = self.running.iter().position(|job| job.number == number);
        if left.is_some_and(|at| !self.running.swap_remove(at).is_stuck) {
            self.meter.ends(now, None);
        }
    }

    fn end(&mut self, number: u64, now: u64) {
        let Some(at) = self.running.iter().position(|job| job.number == number) else {
            return;
        };
        let job = self.running.swap_remove(at);
        let took = now.saturating_sub(job.since);
        // One that hangs for a minute is no measure for others, and neither is one that did not wait for the device.
        let measure = took.min(2 * self.patience());
        self.job_ns = match self.job_ns {
            known if took < SLOW => known,
            0 => measure,
            known => known - known / 8 + measure / 8,
        };
        if !job.is_stuck {
            self.meter.ends(now, Some(took));
        }
    }
}

impl<'a> Turn<'a> {
    /// Of a job that waits for no device of its own.
    pub fn none() -> Turn<'a> {
        Turn {
            turns: None,
            number: 0,
        }
    }

    /// It has nothing to ask the device for.
    pub fn leave(self) {
        if let Some(turns) = self.turns {
            turns.lock().leave(self.number, turns.now());
        }
    }

    /// The last read of the job is under way: the next one's first can follow it.
    pub fn pass(&self) {
        let Some(turns) = self.turns else {
            return;
        };
        let mut state = turns.lock();
        let own = state
            .running
            .iter_mut()
            .find(|job| job.number == self.number);
        if let Some(own) = own {
            own.has_turn = false;
        }
        turns.wake(&state);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(turns) = self.turns {
            let mut state = turns.lock();
            state.end(self.number, turns.now());
            turns.wake(&state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_verdict_none_waits() {
        let turns = Turns::default();
        let (first, second) = (turns.wait(0, 0), turns.wait(0, 0));
        first.pass();
        drop((second, first));
        assert!(!turns.are_taken());
    }

    #[test]
    fn one_that_is_stuck_does_not_keep_the_turn() {
        let turns = Turns::default();
        turns.take_always();
        let stuck = [turns.wait(0, CROWD), turns.wait(0, CROWD)];
        let began = Instant::now();
        for _ in 0..3 {
            drop(turns.wait(0, CROWD));
        }
        let took = began.elapsed();
        assert!(
            took >= STUCK_AT_LEAST - Duration::from_millis(1),
            "{took:?}"
        );
        // Only the first one had to wait for it.
        assert!(took < 2 * STUCK_AT_LEAST, "{took:?}");
        drop(stuck);
    }

    #[test]
    fn on_a_slow_disk_jobs_are_not_stuck() {
        let mut state = State::default();
        let (mut now, took) = (1, 3 * STUCK_AT_LEAST.as_nanos() as u64);
        for number in 0..3 {
            state.begin(number, now);
            now += took;
            state.end(number, now);
        }
        assert!(state.patience() > took, "{}", state.patience());
        // One that hangs does not change that much.
        state.begin(3, now);
        state.end(3, now + 1000 * took);
        assert!(state.patience() < 10 * took, "{}", state.patience());
    }

    #[test]
    fn a_turn_that_is_passed_is_the_next_one_s() {
        let turns = Turns::default();
        turns.take_always();
        let (first, _second) = (turns.wait(0, CROWD), turns.wait(0, CROWD));
        std::thread::scope(|threads| {
            let next = threads.spawn(|| drop(turns.wait(0, CROWD)));
            std::thread::sleep(Duration::from_millis(10));
            assert!(!next.is_finished(), "it is not its turn");
            first.pass();
            next.join().expect("it has its turn");
        });
    }

    #[test]
    fn a_pool_with_more_helpers_has_no_more_turns() {
        let turns = Turns::default();
        turns.take_always();
        let (first, _second) = (turns.wait(0, CROWD), turns.wait(0, CROWD));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            for line in [0, 0, 1] {
                let (turns, order) = (&turns, &order);
                threads.spawn(move || {
                    let _turn = turns.wait(line, CROWD);
                    order.lock().expect("none panics").push(line);
                });
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(first);
        });
        assert_eq!(order.into_inner().expect("none panics"), [1, 0, 0]);
    }

    #[test]
    fn while_few_wait_one_has_the_turn_alone() {
        let turns = Turns::default();
        turns.take_always();
        let first = turns.wait(0, CROWD - 1);
        std::thread::scope(|threads| {
            let next = threads.spawn(|| drop(turns.wait(0, CROWD - 1)));
            std::thread::sleep(Duration::from_millis(10));
            assert!(!next.is_finished(), "it is not its turn");
            // One more comes, so there are two turns.
            let many = threads.spawn(|| drop(turns.wait(0, CROWD)));
            many.join().expect("it has a turn");
            next.join().expect("it has its turn");
        });
        drop(first);
    }
}
