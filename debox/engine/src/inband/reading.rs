// SPDX-License-Identifier: MIT OR Apache-2.0
//! The running totals of a thread's life, read from its slot.
//!
//! The time from the kernel's last stamp to a reading of the same clock here counts as CPU time in user mode. No
//! system call, no lock, no allocation.

use std::ptr;
use std::sync::atomic::{compiler_fence, Ordering};

use crate::record::{Budget, Slot, Totals, TOTALS_AWAY, TOTALS_IRQ, TOTALS_USER_TAP};

use super::slot_fields::read;
use super::sums::{Sums, SUMS_IRQ_MEASURED, SUMS_USER_TAP};

const PARTS: usize = 6;
const CPU: usize = 0;
const OUTSIDE: usize = 5;

/// A thread's life at one moment.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    pub now_ns: u64,
    pub birth_ns: u64,
    life_ns: [u64; PARTS],
    calls_ns: [u64; PARTS],
    calls: u64,
    sleeps: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    unseen_ns: u64,
    unseen: u64,
    untapped: u64,
    /// The length of the open part, if the thread's return to the CPU was not seen.
    away_ns: u64,
    flags: u32,
    reserved: u32,
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time` only; stays in user mode.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// More attempts than a thread can lose its CPU in so short a time. Limited, because a slot that the client
/// itself or others write to must not block the reader.
const ATTEMPTS: usize = 1000;

impl Reading {
    pub const ZERO: Reading = Reading {
        now_ns: 0,
        birth_ns: 0,
        life_ns: [0; PARTS],
        calls_ns: [0; PARTS],
        calls: 0,
        sleeps: 0,
        faults_minor: 0,
        faults_major: 0,
        unseen_ns: 0,
        unseen: 0,
        untapped: 0,
        away_ns: 0,
        flags: 0,
        reserved: 0,
    };

    /// Reads the thread's own slot; `None` if it is never consistent.
    pub fn take(slot: *const Slot) -> Option<Reading> {
        for _ in 0..ATTEMPTS {
            let sequence = read!(slot, totals.sequence);
            let completed = read!(slot, completed);
            compiler_fence(Ordering::SeqCst);
            let totals = read!(slot, totals);
            let tapped_ns = read!(slot, tap_totals_ns);
            let tap_faults = read!(slot, tap_faults);
            let untapped = read!(slot, tap_unstamped);
            let now_ns = monotonic_ns();
            compiler_fence(Ordering::SeqCst);
            // The thread itself counts tapped calls, perhaps in a signal handler.
            let is_whole = sequence & 1 == 0
                && read!(slot, totals.sequence) == sequence
                && read!(slot, completed) == completed;
            if is_whole {
                let mut reading = Reading::of(&totals, now_ns);
                if totals.flags & TOTALS_USER_TAP != 0 {
                    reading.calls_ns = tapped_ns;
                    reading.calls = completed;
                    reading.faults_minor = u64::from(tap_faults);
                    reading.faults_major = 0;
                    reading.untapped = untapped;
                }
                return Some(reading);
            }
        }
        None
    }

    fn of(totals: &Totals, now_ns: u64) -> Reading {
        let open = now_ns.saturating_sub(totals.stamp_ns);
        let mut life_ns = totals.life_ns;
        life_ns[CPU] += open;
        Reading {
            // By this clock or the kernel's, which may be slightly ahead if it was read on another CPU.
            now_ns: totals.stamp_ns + open,
            birth_ns: totals.birth_ns,
            life_ns,
            calls_ns: totals.calls_ns,
            calls: totals.calls,
            sleeps: totals.sleeps,
            faults_minor: totals.faults_minor,
            faults_major: totals.faults_major,
            unseen_ns: totals.unseen_ns,
            unseen: totals.unseen,
            untapped: 0,
            away_ns: match totals.flags & TOTALS_AWAY {
                0 => 0,
                _ => open,
            },
            flags: totals.flags,
            reserved: 0,
        }
    }

    /// Whether both are readings of one thread in one session.
    pub fn is_of_same_life(&self, other: &Reading) -> bool {
        self.birth_ns == other.birth_ns
    }

    /// Adds what happened between two readings to this sum.
    pub fn add(&mut self, begin: &Reading, end: &Reading) {
        let sums = begin.until(end);
        let grown = differences(&begin.life_ns, &end.life_ns);
        self.birth_ns = end.birth_ns;
        self.now_ns += sums.wall_ns;
        for (part, grown) in grown.iter().enumerate() {
            self.life_ns[part] += grown;
            let in_calls = end.calls_ns[part].saturating_sub(begin.calls_ns[part]);
            self.calls_ns[part] += in_calls;
        }
        self.calls += sums.calls;
        self.sleeps += sums.sleeps;
        self.faults_minor += sums.faults_minor;
        self.faults_major += sums.faults_major;
        self.unseen_ns += sums.unseen_ns;
        self.unseen += sums.unseen;
        self.untapped += sums.untapped;
    }

    /// This reading without the sum in the other.
    pub fn without(mut self, other: &Reading) -> Reading {
        let take = |from: &mut u64, what: u64| *from = from.saturating_sub(what);
        take(&mut self.now_ns, other.now_ns);
        for part in 0..PARTS {
            take(&mut self.life_ns[part], other.life_ns[part]);
            take(&mut self.calls_ns[part], other.calls_ns[part]);
        }
        take(&mut self.calls, other.calls);
        take(&mut self.sleeps, other.sleeps);
        take(&mut self.faults_minor, other.faults_minor);
        take(&mut self.faults_major, other.faults_major);
        take(&mut self.unseen_ns, other.unseen_ns);
        take(&mut self.unseen, other.unseen);
        take(&mut self.untapped, other.untapped);
        self
    }

    /// This reading with so many fewer calls.
    pub fn without_calls(mut self, calls: u64) -> Reading {
        if self.flags & TOTALS_USER_TAP == 0 {
            self.calls = self.calls.saturating_sub(calls);
        }
        self
    }

    /// What happened from this reading to a later one.
    pub fn until(&self, end: &Reading) -> Sums {
        let wall_ns = end.now_ns.saturating_sub(self.now_ns);
        let budget = differences(&self.life_ns, &end.life_ns);
        let mut in_calls = [0; PARTS];
        for part in 0..PARTS {
            in_calls[part] = end.calls_ns[part].saturating_sub(self.calls_ns[part]);
            // The user tap's clock differs slightly from the kernel's.
            if part != OUTSIDE {
                in_calls[part] = in_calls[part].min(budget[part]);
            }
        }
        let mut flags = 0;
        if end.flags & TOTALS_IRQ != 0 {
            flags |= SUMS_IRQ_MEASURED;
        }
        if end.flags & TOTALS_USER_TAP != 0 {
            flags |= SUMS_USER_TAP;
        }
        Sums {
            wall_ns,
            budget: budget_of(budget),
            in_calls: budget_of(in_calls),
            calls: end.calls.saturating_sub(self.calls),
            sleeps: end.sleeps.saturating_sub(self.sleeps),
            faults_minor: end.faults_minor.saturating_sub(self.faults_minor),
            faults_major: end.faults_major.saturating_sub(self.faults_major),
            unseen_ns: end.unseen_ns.saturating_sub(self.unseen_ns) + self.away_ns + end.away_ns,
            unseen: end.unseen.saturating_sub(self.unseen),
            untapped: end.untapped.saturating_sub(self.untapped),
            flags,
            reserved: [0; 3],
        }
    }
}

/// The growth of the parts, with the sum preserved. A part shrinks if its time was first attributed to it
/// because a switch was hidden; the deficit is subtracted from the parts that have grown.
fn differences(begin: &[u64; PARTS], end: &[u64; PARTS]) -> [u64; PARTS] {
    let mut grown = [0; PARTS];
    let mut owed = 0;
    for part in 0..PARTS {
        grown[part] = end[part].saturating_sub(begin[part]);
        owed += begin[part].saturating_sub(end[part]);
    }
    while owed > 0 {
        let most = (0..PARTS).max_by_key(|part| grown[*part]).unwrap_or(CPU);
        let taken = owed.min(grown[most]);
        if taken == 0 {
            break;
        }
        grown[most] -= taken;
        owed -= taken;
    }
    grown
}

fn budget_of(parts: [u64; PARTS]) -> Budget {
    let [cpu_ns, blocked_ns, runqueue_ns, preempted_ns, irq_ns, outside_ns] = parts;
    Budget {
        cpu_ns,
        blocked_ns,
        runqueue_ns,
        preempted_ns,
        irq_ns,
        outside_ns,
    }
}

/// The thread's page faults so far, as the kernel counts them.
pub(super) fn all_faults() -> (u64, u64) {
    // SAFETY: any bytes are a rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `usage` only. A raw call, not libc's function, so that no user tap counts it.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> Totals {
        Totals {
            birth_ns: 100,
            stamp_ns: 1000,
            life_ns: [500, 300, 50, 50, 0, 0],
            calls_ns: [200, 300, 20, 0, 0, 0],
            calls: 7,
            ..Totals::default()
        }
    }

    fn later_totals() -> Totals {
        Totals {
            stamp_ns: 2000,
            life_ns: [900, 800, 100, 100, 0, 0],
            calls_ns: [300, 700, 50, 0, 0, 0],
            calls: 9,
            ..totals()
        }
    }

    #[test]
    fn parts_add_up_to_wall_time() {
        let later = later_totals();
        let sums = Reading::of(&totals(), 1200).until(&Reading::of(&later, 2100));
        assert_eq!(sums.wall_ns, 900);
        assert_eq!(sums.budget, budget_of([300, 500, 50, 50, 0, 0]));
        assert_eq!(sums.in_calls, budget_of([100, 400, 30, 0, 0, 0]));
        assert_eq!((sums.cpu_user_ns(), sums.cpu_kernel_ns()), (200, 100));
        assert_eq!(sums.calls, 2);
        assert_eq!(
            sums.to_string(),
            "wall=900ns cpu=300ns blocked=500ns runqueue=50ns preempted=50ns calls=2"
        );
    }

    #[test]
    fn work_of_the_library_is_left_out_of_every_part() {
        let later = later_totals();
        let (begin, end) = (Reading::of(&totals(), 1200), Reading::of(&later, 2100));
        let mut work = Reading::ZERO;
        work.add(&begin, &end);
        assert!(work.is_of_same_life(&end));
        let sums = begin.until(&end.without(&work));
        assert_eq!((sums.wall_ns, sums.calls), (0, 0));
        assert_eq!(sums.budget, Budget::default());
        assert_eq!(sums.in_calls, Budget::default());
        // Two equal sums, with the program's own work between them.
        let mut last = later;
        last.stamp_ns = 2600;
        last.life_ns[CPU] += 600;
        last.calls += 3;
        let sums = begin.until(&Reading::of(&last, 2600).without(&work));
        assert_eq!(
            (sums.wall_ns, sums.budget.cpu_ns, sums.calls),
            (500, 500, 3)
        );
    }

    #[test]
    fn a_clock_behind_the_last_stamp_takes_nothing_back() {
        let reading = Reading::of(&totals(), 990);
        assert_eq!((reading.now_ns, reading.life_ns[CPU]), (1000, 500));
    }

    #[test]
    fn what_was_taken_for_cpu_time_first_is_unseen_and_the_sum_holds() {
        let mut begin = totals();
        begin.flags = TOTALS_AWAY;
        let mut end = totals(); // the 400 ns until the scope began turn out to be waiting
        end.stamp_ns = 1500;
        end.life_ns[1] += 450;
        end.life_ns[CPU] += 50;
        let sums = Reading::of(&begin, 1400).until(&Reading::of(&end, 1500));
        assert_eq!(sums.wall_ns, 100);
        let budget = sums.budget;
        assert_eq!(budget.cpu_ns + budget.blocked_ns, 100);
        assert_eq!(sums.unseen_ns, 400);
        assert!(sums.to_string().ends_with("unseen=400ns/0"), "{sums}");
    }
}
