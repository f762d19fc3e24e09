//! The other threads of a loop's process: which of them are new, and when they waited for a CPU.
//!
//! A loop that waits for a lock of its runtime waits for the thread that has it. If the machine has no CPU for that
//! thread, the wait lasts as long as that: the program has not blocked the loop, the machine is too small for what runs
//! on it.

use std::collections::{HashMap, VecDeque};

use debox::history::Call;

/// Threads whose begin is known.
const MAX_THREADS: usize = 1 << 18;

/// Waits that are kept of one process: the latest.
const MAX_WAITS: usize = 8192;

/// Shorter sleeps do not matter.
const SLEEP_MIN_NS: u64 = 50_000;

/// So many threads wait for each other in turn, at most.
const MAX_IN_TURN: u32 = 4;

#[derive(Default)]
pub struct Peers {
    /// Threads whose first call was seen.
    born: HashMap<u32, Born>,
    /// By process.
    waits: HashMap<u32, VecDeque<CpuWait>>,
    sleeps: HashMap<u32, VecDeque<Ended>>,
}

/// Since its first call.
#[derive(Debug, Clone, Copy)]
struct Born {
    at_ns: u64,
    /// Its first long sleep, but for locks.
    waited_ns: Option<u64>,
}

/// A thread could have run and had no CPU, for `ns` of this time.
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
    /// The part of it in this time. Where in its own time the thread had no CPU is not known: evenly.
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
    /// `is_long`: it slept for longer than a loop may.
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
        // When in this time is not known. A thread that has not run yet waits without having slept.
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

    /// Whether a thread began at that time or later, and had not waited itself, but for locks, when it ended a sleep.
    /// What it did after that may be known already: the other thread may have had no CPU since.
    pub fn is_new_since(&self, tid: u32, since_ns: u64, ended_ns: u64) -> bool {
        let born = self.born.get(&tid);
        born.is_some_and(|born| {
            born.at_ns >= since_ns && born.waited_ns.is_none_or(|waited_ns| waited_ns >= ended_ns)
        })
    }

    /// How long the thread that ended a sleep waited for a CPU meanwhile; or, while it slept itself, the one that it
    /// waited for.
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
