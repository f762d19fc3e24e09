//! Which threads are event loops, and which of their calls blocked.

mod peers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use debox::history::{Call, Sleep};
use debox::runtimes::{Phase, Rule, Runtimes, Wait};

use crate::options::LoopThread;
use peers::Peers;

/// Waits for events that only event loops make: one of them makes the thread a loop.
const LOOP_WAITS: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
    "io_getevents",
    "io_pgetevents",
];

/// These are made for a single descriptor, too: only a main thread that keeps making them, and none
/// of the others, is a loop.
const MAIN_WAITS: &[&str] = &["poll", "ppoll", "select", "pselect6"];
const MAIN_WAITS_NEEDED: u64 = 3;

/// Violations that are kept one by one.
const MAX_VIOLATIONS: usize = 10_000;

/// Waits of one turn of a loop that are kept until it ends.
const MAX_OF_TURN: usize = 1024;

/// What counts.
pub struct Rules {
    pub threads: LoopThread,
    /// Calls that may block, beside the waits for events.
    pub allowed: Vec<String>,
    pub max_blocked_ns: u64,
    /// What a runtime waits for itself is no violation; `None`: it is.
    pub runtimes: Option<Runtimes>,
}

/// Waits of a thread that are its runtime's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeWaits {
    pub count: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    /// Of `blocked_ns`: the thread that ended the wait could have run and waited for a CPU.
    pub without_cpu_ns: u64,
}

/// A call that must not have blocked.
#[derive(Debug, Clone)]
pub struct Violation {
    pub call: Call,
    /// By this rule it is the runtime's, in which it has taken too long in one turn of the loop.
    pub rule: Option<usize>,
}

/// A thread that is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looper {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Waits for events; before the first one the thread was starting.
    pub waits: u64,
    /// Calls since then, the waits included.
    pub calls: u64,
    /// Of the calls that must not block: the longest time asleep in one.
    pub longest_blocked_ns: u64,
    /// By rule.
    pub runtime: BTreeMap<usize, RuntimeWaits>,
    /// Of epoll or io_uring: the first one on which the thread waited and that is still open. A wait on
    /// another is a loop inside the loop, which keeps the outer one waiting: as `execSync` of Node does.
    own: Option<u64>,
    /// What it does is start-up until it waits on a descriptor again.
    starts_again: bool,
    /// When its last wait for events ended.
    turn_ns: u64,
}

pub struct Watch {
    rules: Rules,
    threads: BTreeMap<u32, Looper>,
    /// Waits of threads that may turn out to be loops.
    candidates: HashMap<u32, u64>,
    /// Processes with a loop.
    processes: HashSet<u32>,
    /// By thread: the waits of this turn whose rule has a limit. They are judged when the turn ends, because only then
    /// it is known what the other threads did meanwhile.
    turns: HashMap<u32, Vec<(usize, Call)>>,
    peers: Peers,
    pub violations: Vec<Violation>,
    /// Violations beyond those.
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

    /// The threads that were looked at.
    pub fn threads(&self) -> impl Iterator<Item = &Looper> {
        self.threads.values()
    }

    pub fn rule(&self, index: usize) -> &Rule {
        let runtimes = self.rules.runtimes.as_ref();
        &runtimes.expect("an index is of a rule").rules()[index]
    }

    /// Whether calls count that a runtime makes for itself.
    pub fn is_strict(&self) -> bool {
        self.rules.runtimes.is_none()
    }

    /// Looks at a call; whether it is a violation for sure, which then is the last of `violations`.
    pub fn see(&mut self, call: Call) -> bool {
        self.peers
            .see(&call, call.budget.blocked_ns > self.rules.max_blocked_ns);
        // A thread that is ending is no loop any more.
        if call.in_flight && matches!(&*call.name, "exit" | "exit_group") {
            return false;
        }
        let is_main_wait = MAIN_WAITS.contains(&&*call.name) && call.tid == call.pid;
        // io_uring_enter that does not sleep hands requests in: no wait.
        let is_loop_wait = LOOP_WAITS.contains(&&*call.name)
            && (call.name.starts_with("epoll") || call.budget.blocked_ns > 0);
        let rule = self.rule_of(&call);
        let parks = rule.is_some_and(|index| self.rule(index).phase == Phase::Parking);
        let is_known = self.threads.contains_key(&call.tid);
        if !is_known && !self.begins_loop(&call, is_main_wait || is_loop_wait, parks) {
            return false;
        }
        self.processes.insert(call.pid);
        let looper = self.threads.entry(call.tid).or_default();
        let is_wait = looper.take_in(&call, is_loop_wait, is_main_wait);
        let starts = looper.starts_again;
        if is_wait || parks {
            looper.waits += 1;
            looper.turn_ns = call.start_ns.saturating_add(call.wall_ns);
            self.end_turn(call.tid);
        }
        let is_allowed = |name: &String| **name == *call.name;
        // Of a wait in flight its descriptor need not be known.
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

    /// There are no more calls.
    pub fn end(&mut self) {
        let open: Vec<u32> = self.turns.keys().copied().collect();
        for tid in open {
            self.end_turn(tid);
        }
    }

    /// Judges the waits of a turn whose rules have limits. Time in which the threads that ended them waited for a CPU
    /// themselves is not counted.
    fn end_turn(&mut self, tid: u32) {
        let Some(turn) = self.turns.remove(&tid) else {
            return;
        };
        // A thread that ended one of the waits may have been the cause of another, which a time limit ended.
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

    /// Whether a call that is not the runtime's, or for longer than it may be, is a violation.
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

    /// The rule by which a call that slept for too long is the runtime's.
    fn rule_of(&self, call: &Call) -> Option<usize> {
        let runtimes = self.rules.runtimes.as_ref()?;
        if call.budget.blocked_ns <= self.rules.max_blocked_ns {
            return None;
        }
        let frames: Vec<&str> = call.stack.as_deref()?.rsplit(';').collect();
        let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
        runtimes.find(&Wait {
            call: &call.name,
            label: longest.map_or("", |sleep| &sleep.label),
            frames: &frames,
            waker: longest.and_then(|sleep| sleep.waker_comm.as_deref()),
            waker_is_new: longest.is_some_and(|sleep| self.has_new_waker(call, sleep)),
        })
    }

    /// Whether a thread ended a sleep that began since the loop that made the call waited for events, and had not
    /// waited itself, but for locks.
    fn has_new_waker(&self, call: &Call, sleep: &Sleep) -> bool {
        let turn = self.threads.get(&call.tid).map(|looper| looper.turn_ns);
        let ended_ns = sleep.begin_ns.saturating_add(sleep.blocked_ns);
        let waker = sleep.waker_tid.zip(turn);
        waker.is_some_and(|(tid, turn_ns)| self.peers.is_new_since(tid, turn_ns, ended_ns))
    }

    /// A thread is looked at from its first wait for events on: before, it starts. In a process with a loop, a
    /// thread that waits for work as the runtime's workers do is one of several loops that share it.
    fn begins_loop(&mut self, call: &Call, is_wait: bool, parks: bool) -> bool {
        match &self.rules.threads {
            LoopThread::All => true,
            LoopThread::Main => call.tid == call.pid && is_wait,
            LoopThread::Tid(tid) => call.tid == *tid,
            LoopThread::Named(name) => *call.comm == **name,
            LoopThread::Auto if !is_wait => parks && self.processes.contains(&call.pid),
            LoopThread::Auto if !MAIN_WAITS.contains(&&*call.name) => true,
            LoopThread::Auto => {
                let waits = self.candidates.entry(call.tid).or_default();
                *waits += 1;
                *waits >= MAIN_WAITS_NEEDED
            }
        }
    }
}

fn micros(us: u64) -> u64 {
    us.saturating_mul(1000)
}

impl Looper {
    /// Notes a call of the loop; whether it is its wait for events.
    fn take_in(&mut self, call: &Call, is_loop_wait: bool, is_main_wait: bool) -> bool {
        if is_loop_wait && self.own.is_none() {
            self.own = Some(call.args[0]);
            self.starts_again = false;
        }
        let is_wait = match is_loop_wait {
            true => self.own == Some(call.args[0]),
            false => is_main_wait && self.own.is_none(),
        };
        if &*call.name == "close" && self.own == Some(call.args[0]) {
            self.own = None;
            self.starts_again = true;
        }
        (self.pid, self.tid) = (call.pid, call.tid);
        if *self.comm != *call.comm {
            self.comm = call.comm.to_string();
        }
        self.calls += u64::from(call.number >= 0);
        is_wait
    }
}
