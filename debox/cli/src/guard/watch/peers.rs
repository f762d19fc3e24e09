//! The other threads of a loop's process: which of them are new, and when they waited for a CPU.
//!
//! A loop that waits for a lock of its runtime waits for the thread that holds it. If no CPU is free for that thread,
//! the wait lasts until one is. Then the program has not blocked the loop: the machine is too small for what runs on
//! it.

use std::collections::{HashMap, VecDeque};

use debox::history::Call;

/// Threads whose first call is remembered, at most.
const MAX_THREADS: usize = 1 << 18;

/// Waits of one process that are remembered: the latest ones.
const MAX_WAITS: usize = 8192;

/// Shorter sleeps are ignored.
const SLEEP_MIN_NS: u64 = 50_000;

/// How long a chain of threads that wait for each other may be.
const MAX_IN_TURN: u32 = 4;

#[derive(Default)]
pub struct Peers {
    /// Threads whose first call was seen.
    born: HashMap<u32, Born>,
    /// CPU waits, by process.
    waits: HashMap<u32, VecDeque<CpuWait>>,
    sleeps: HashMap<u32, VecDeque<Ended>>,
}

/// When a thread made its first call.
#[derive(Debug, Clone, Copy)]
struct Born {
    at_ns: u64,
    /// When its first long sleep began, sleeps for locks excepted.
    waited_ns: Option<u64>,
}

/// A thread was runnable without a CPU for `ns` of this interval.
#[derive(Debug, Clone, Copy)]
struct CpuWait {
    tid: u32,
    from_ns: u64,
    to_ns: u64,
    ns: u64,
}

/// A sleep that another thread ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    tid: u32,
    from_ns: u64,
    to_ns: u64,
    by: u32,
}

impl CpuWait {
    /// The part of the wait that falls into an interval. When exactly the thread had no CPU is not known: an even
    /// spread is assumed.
    fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let both_ns = self
            .to_ns
            .min(to_ns)
            .saturating_sub(self.from_ns.max(from_ns));
        let length_ns = self.to_ns.saturating_sub(self.from_ns).max(1);
        (u128::from(both_ns) * u128::from(self.ns) / u128::from(length_ns)) as u64
    }
}

impl Peers {
    /// Looks at a call. `is_long`: it slept for longer than a loop may.
    pub fn see(&mut self, call: &Call, is_long: bool) {
        if call.ordinal == 1 && self.born.len() < MAX_THREADS {
            let born = Born {
                at_ns: call.start_ns,
                waited_ns: None,
            };
            self.born.insert(call.tid, born);
        }
        if is_long && &*call.name != "futex" {
            if let Some(born) = self.born.get_mut(&call.tid) {
                born.waited_ns.get_or_insert(call.start_ns);
            }
        }
        for sleep in &call.sleeps {
            let to_ns = sleep.begin_ns.saturating_add(sleep.blocked_ns);
            if sleep.runqueue_ns > 0 {
                self.note(call, to_ns, sleep.runqueue_ns, sleep.runqueue_ns);
            }
            if let Some(by) = sleep.waker_tid.filter(|_| sleep.blocked_ns >= SLEEP_MIN_NS) {
                let ended = Ended {
                    tid: call.tid,
                    from_ns: sleep.begin_ns,
                    to_ns,
                    by,
                };
                push(self.sleeps.entry(call.pid).or_default(), ended);
            }
        }
        // The remaining waits for a CPU happened at an unknown time in the call. A thread that has not run yet waits
        // for a CPU without having slept.
        let after_sleeps_ns: u64 = call.sleeps.iter().map(|sleep| sleep.runqueue_ns).sum();
        let waited_ns = call.budget.runqueue_ns.saturating_sub(after_sleeps_ns);
        let ns = call.budget.preempted_ns.saturating_add(waited_ns);
        if ns > 0 {
            self.note(call, call.start_ns, call.wall_ns, ns);
        }
    }

    fn note(&mut self, call: &Call, from_ns: u64, length_ns: u64, ns: u64) {
        let wait = CpuWait {
            tid: call.tid,
            from_ns,
            to_ns: from_ns.saturating_add(length_ns),
            ns,
        };
        push(self.waits.entry(call.pid).or_default(), wait);
    }

    /// Whether a thread began at `since_ns` or later, and had not itself waited, except for locks, before it ended a
    /// sleep at `ended_ns`. Later waits may be known already, because the woken thread may have had to wait for a CPU.
    pub fn is_new_since(&self, tid: u32, since_ns: u64, ended_ns: u64) -> bool {
        let born = self.born.get(&tid);
        born.is_some_and(|born| {
            born.at_ns >= since_ns && born.waited_ns.is_none_or(|waited_ns| waited_ns >= ended_ns)
        })
    }

    /// How long the waking thread waited for a CPU in this interval. While it was asleep itself, the thread that woke
    /// it counts instead.
    pub fn without_cpu_ns(&self, pid: u32, waker: u32, from_ns: u64, to_ns: u64) -> u64 {
        let ns = self.blamed_ns(pid, waker, (from_ns, to_ns), MAX_IN_TURN);
        ns.min(to_ns.saturating_sub(from_ns))
    }

    fn blamed_ns(&self, pid: u32, tid: u32, (from_ns, to_ns): (u64, u64), left: u32) -> u64 {
        if left == 0 || from_ns >= to_ns {
            return 0;
        }
        let waits = self.waits.get(&pid).into_iter().flatten();
        let waits = waits.filter(|wait| wait.tid == tid);
        let own_ns: u64 = waits.map(|wait| wait.within_ns(from_ns, to_ns)).sum();
        let sleeps = self.sleeps.get(&pid).into_iter().flatten();
        let sleeps = sleeps.filter(|it| it.tid == tid && it.to_ns > from_ns && it.from_ns < to_ns);
        let others_ns: u64 = sleeps
            .map(|it| {
                let both = (it.from_ns.max(from_ns), it.to_ns.min(to_ns));
                self.blamed_ns(pid, it.by, both, left - 1)
            })
            .sum();
        own_ns.saturating_add(others_ns)
    }
}

fn push<T>(latest: &mut VecDeque<T>, one: T) {
    if latest.len() >= MAX_WAITS {
        latest.pop_front();
    }
    latest.push_back(one);
}
