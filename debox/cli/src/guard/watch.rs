//! Which threads are event loops, and which of their calls blocked.

mod peers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use debox::frame::unfold;
use debox::history::{Call, Sleep};
use debox::loops::{EventWait, Own, POLLS_MIN};
use debox::runtimes::{Phase, Rule, Runtimes, Wait};

use crate::options::LoopThread;
use peers::Peers;

/// Violations that are kept one by one.
const MAX_VIOLATIONS: usize = 10_000;

/// Waits of one turn of a loop that are kept until the turn ends, at most.
const MAX_OF_TURN: usize = 1024;

/// What the guard counts as a violation.
pub struct Rules {
    pub threads: LoopThread,
    /// Calls that may block, in addition to the waits for events.
    pub allowed: Vec<String>,
    pub max_blocked_ns: u64,
    /// Rules for a runtime's own waits, which are no violations. `None`: they are violations, too.
    pub runtimes: Option<Runtimes>,
}

/// Waits of a thread that are its runtime's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeWaits {
    pub count: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    /// Part of `blocked_ns` in which the thread that ended the wait was runnable, but waited for a CPU.
    pub without_cpu_ns: u64,
}

/// A call that must not have blocked.
#[derive(Debug, Clone)]
pub struct Violation {
    pub call: Call,
    /// Set if this rule says that the wait is the runtime's, but its limit for one turn of the loop was exceeded.
    pub rule: Option<usize>,
}

/// A thread that the guard watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looper {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Waits for events. Before the first one, the thread is starting up.
    pub waits: u64,
    /// Calls since then, the waits included.
    pub calls: u64,
    /// The longest time asleep in one call that must not block.
    pub longest_blocked_ns: u64,
    /// Runtime waits, by rule.
    pub runtime: BTreeMap<usize, RuntimeWaits>,
    /// Where it waits for its events.
    own: Own,
    /// When its last wait for events ended.
    turn_ns: u64,
}

pub struct Watch {
    rules: Rules,
    threads: BTreeMap<u32, Looper>,
    /// Number of waits for events, by thread, of threads that may turn out to be loops.
    candidates: HashMap<u32, u64>,
    /// Processes that have a loop.
    processes: HashSet<u32>,
    /// By thread: the waits of this turn whose rule has a limit. They are judged when the turn ends, because only then
    /// the guard knows what the other threads did.
    turns: HashMap<u32, Vec<(usize, Call)>>,
    peers: Peers,
    pub violations: Vec<Violation>,
    /// Violations that were not kept.
    pub left_out: u64,
}

impl Watch {
    pub fn new(rules: Rules) -> Watch {
        Watch {
            rules,
            threads: BTreeMap::new(),
            candidates: HashMap::new(),
            processes: HashSet::new(),
            turns: HashMap::new(),
            peers: Peers::default(),
            violations: Vec::new(),
            left_out: 0,
        }
    }

    /// The threads that the guard watches.
    pub fn threads(&self) -> impl Iterator<Item = &Looper> {
        self.threads.values()
    }

    pub fn rule(&self, index: usize) -> &Rule {
        let runtimes = self.rules.runtimes.as_ref();
        &runtimes.expect("an index is of a rule").rules()[index]
    }

    /// Whether a runtime's own waits count as violations.
    pub fn is_strict(&self) -> bool {
        self.rules.runtimes.is_none()
    }

    /// Looks at a call. Returns whether it is certainly a violation; it is then the last of `violations`.
    pub fn see(&mut self, call: Call) -> bool {
        self.peers
            .see(&call, call.budget.blocked_ns > self.rules.max_blocked_ns);
        // A thread that is exiting is no longer a loop. It may wait for a lock of the address space.
        if matches!(&*call.name, "exit" | "exit_group") {
            return false;
        }
        let has_slept = call.budget.blocked_ns > 0;
        let events = EventWait::of(&call.name, call.tid == call.pid, has_slept);
        let is_loop_wait = events == Some(EventWait::AtInstance);
        let rule = self.rule_of(&call);
        let parks = rule.is_some_and(|index| self.rule(index).phase == Phase::Parking);
        let is_known = self.threads.contains_key(&call.tid);
        if !is_known && !self.begins_loop(&call, events, parks) {
            return false;
        }
        self.processes.insert(call.pid);
        let looper = self.threads.entry(call.tid).or_default();
        let is_wait = looper.take_in(&call, events);
        let starts = looper.own.starts_again();
        if is_wait || parks {
            looper.waits += 1;
            looper.turn_ns = call.start_ns.saturating_add(call.wall_ns);
            self.end_turn(call.tid);
        }
        let is_allowed = |name: &String| **name == *call.name;
        // The descriptor of a wait that is still in flight may not be known.
        if is_wait
            || (call.in_flight && is_loop_wait)
            || starts
            || self.rules.allowed.iter().any(is_allowed)
        {
            return false;
        }
        match rule {
            Some(index) if self.rule(index).up_to_us.is_some() => {
                let tid = call.tid;
                let turn = self.turns.entry(tid).or_default();
                turn.push((index, call));
                if turn.len() >= MAX_OF_TURN {
                    self.end_turn(tid);
                }
                false
            }
            Some(index) => {
                self.count_runtime_wait(index, &call, 0);
                false
            }
            None => self.judge(call, None),
        }
    }

    /// Ends all turns: there are no more calls.
    pub fn end(&mut self) {
        let open: Vec<u32> = self.turns.keys().copied().collect();
        for tid in open {
            self.end_turn(tid);
        }
    }

    /// Judges the waits of a turn whose rules have limits. Time in which the waking threads themselves waited for a
    /// CPU is not counted.
    fn end_turn(&mut self, tid: u32) {
        let Some(turn) = self.turns.remove(&tid) else {
            return;
        };
        // A wait that ended by its time limit has no waker. The last thread that ended another wait may have caused
        // it.
        let sleeps = turn.iter().flat_map(|(_, call)| &call.sleeps);
        let last_waker = sleeps.filter_map(|sleep| sleep.waker_tid).next_back();
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, call) in turn {
            let without = |sleep: &Sleep| {
                let waker = sleep.waker_tid.or(last_waker)?;
                let to_ns = sleep.begin_ns.saturating_add(sleep.blocked_ns);
                let ns = self
                    .peers
                    .without_cpu_ns(call.pid, waker, sleep.begin_ns, to_ns);
                Some(ns)
            };
            let without_cpu_ns = call.sleeps.iter().filter_map(without).sum();
            let counted_ns = call.budget.blocked_ns.saturating_sub(without_cpu_ns);
            let sum = sums.entry(index).or_default();
            *sum = sum.saturating_add(counted_ns);
            let most_ns = self.rule(index).up_to_us.map_or(u64::MAX, micros);
            if *sum <= most_ns {
                self.count_runtime_wait(index, &call, without_cpu_ns);
            } else {
                self.judge(call, Some(index));
            }
        }
    }

    fn count_runtime_wait(&mut self, rule: usize, call: &Call, without_cpu_ns: u64) {
        let looper = self.threads.entry(call.tid).or_default();
        let waits = looper.runtime.entry(rule).or_default();
        let blocked_ns = call.budget.blocked_ns;
        waits.count += 1;
        waits.blocked_ns = waits.blocked_ns.saturating_add(blocked_ns);
        waits.longest_ns = waits.longest_ns.max(blocked_ns);
        waits.without_cpu_ns = waits.without_cpu_ns.saturating_add(without_cpu_ns);
    }

    /// Counts a call that is not the runtime's, or exceeds the runtime's limit. Returns whether it is a violation.
    fn judge(&mut self, call: Call, rule: Option<usize>) -> bool {
        let blocked_ns = call.budget.blocked_ns;
        let looper = self.threads.entry(call.tid).or_default();
        looper.longest_blocked_ns = looper.longest_blocked_ns.max(blocked_ns);
        if blocked_ns <= self.rules.max_blocked_ns {
            return false;
        }
        if self.violations.len() >= MAX_VIOLATIONS {
            self.left_out += 1;
            return false;
        }
        self.violations.push(Violation { call, rule });
        true
    }

    /// The rule that says that this call, which slept for too long, is the runtime's own.
    fn rule_of(&self, call: &Call) -> Option<usize> {
        let runtimes = self.rules.runtimes.as_ref()?;
        if call.budget.blocked_ns <= self.rules.max_blocked_ns {
            return None;
        }
        let frames = unfold(call.stack.as_deref()?);
        let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
        runtimes.find(&Wait {
            call: &call.name,
            label: longest.map_or("", |sleep| &sleep.label),
            frames: &frames,
            waker: longest.and_then(|sleep| sleep.waker_comm.as_deref()),
            waker_is_new: longest.is_some_and(|sleep| self.has_new_waker(call, sleep)),
        })
    }

    /// Whether the thread that ended the sleep began after the loop's last wait for events, and had not itself waited
    /// by then, except for locks.
    fn has_new_waker(&self, call: &Call, sleep: &Sleep) -> bool {
        let turn = self.threads.get(&call.tid).map(|looper| looper.turn_ns);
        let ended_ns = sleep.begin_ns.saturating_add(sleep.blocked_ns);
        let waker = sleep.waker_tid.zip(turn);
        waker.is_some_and(|(tid, turn_ns)| self.peers.is_new_since(tid, turn_ns, ended_ns))
    }

    /// Whether the guard watches the thread from this call on. A thread before its first wait for events is starting
    /// up. In a process with a loop, a thread that waits for work as the runtime's workers do is one of several loops
    /// that share the work.
    fn begins_loop(&mut self, call: &Call, events: Option<EventWait>, parks: bool) -> bool {
        match &self.rules.threads {
            LoopThread::All => true,
            LoopThread::Main => call.tid == call.pid && events.is_some(),
            LoopThread::Tid(tid) => call.tid == *tid,
            LoopThread::Named(name) => *call.comm == **name,
            LoopThread::Auto => match events {
                None => parks && self.processes.contains(&call.pid),
                Some(EventWait::AtInstance) => true,
                Some(EventWait::Polled) => {
                    let waits = self.candidates.entry(call.tid).or_default();
                    *waits += 1;
                    *waits >= POLLS_MIN
                }
            },
        }
    }
}

fn micros(us: u64) -> u64 {
    us.saturating_mul(1000)
}

impl Looper {
    /// Counts a call of the loop. Returns whether it is the loop's wait for events.
    fn take_in(&mut self, call: &Call, events: Option<EventWait>) -> bool {
        let is_wait = events.is_some_and(|events| self.own.take_in(events, call.args[0]));
        if &*call.name == "close" {
            self.own.close(call.args[0]);
        }
        (self.pid, self.tid) = (call.pid, call.tid);
        if *self.comm != *call.comm {
            self.comm = call.comm.to_string();
        }
        self.calls += u64::from(call.number >= 0);
        is_wait
    }
}
