//! Which threads are event loops, and which of their calls blocked.

use std::collections::{BTreeMap, HashMap, HashSet};

use debox::history::Call;
use debox::runtimes::{Phase, Rule, Runtimes, Wait};

use crate::options::LoopThread;

/// Waits for events by which a loop is known at once: nobody else makes them.
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

/// Since its first call.
#[derive(Debug, Clone, Copy)]
struct Born {
    at_ns: u64,
    has_waited: bool,
}

/// Threads whose begin is known.
const MAX_THREADS: usize = 1 << 18;

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
    /// In this turn of the loop.
    turn_ns: u64,
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
    /// Threads whose first call was seen.
    born: HashMap<u32, Born>,
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
            born: HashMap::new(),
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

    /// Looks at a call; whether it is a violation, which then is the last of `violations`.
    pub fn see(&mut self, call: Call) -> bool {
        self.note_birth(&call);
        // A thread that is ending is no loop any more.
        if call.in_flight && matches!(&*call.name, "exit" | "exit_group") {
            return false;
        }
        let is_main_wait = MAIN_WAITS.contains(&&*call.name) && call.tid == call.pid;
        // io_uring_enter that does not sleep hands requests in: no wait.
        let is_loop_wait = LOOP_WAITS.contains(&&*call.name)
            && (call.name.starts_with("epoll") || call.budget.blocked_ns > 0);
        let rule = self.rule_of(&call);
        let phase = rule.map(|index| self.rule(index).phase);
        let parks = phase == Some(Phase::Parking);
        let is_known = self.threads.contains_key(&call.tid);
        if !is_known && !self.begins_loop(&call, is_main_wait || is_loop_wait, parks) {
            return false;
        }
        let most_ns = rule.and_then(|index| self.rule(index).up_to_us);
        let most_ns = most_ns.map_or(u64::MAX, |most| most.saturating_mul(1000));
        self.processes.insert(call.pid);
        let looper = self.threads.entry(call.tid).or_default();
        if is_loop_wait && looper.own.is_none() {
            looper.own = Some(call.args[0]);
            looper.starts_again = false;
        }
        let is_wait = match is_loop_wait {
            true => looper.own == Some(call.args[0]),
            false => is_main_wait && looper.own.is_none(),
        };
        if &*call.name == "close" && looper.own == Some(call.args[0]) {
            looper.own = None;
            looper.starts_again = true;
        }
        (looper.pid, looper.tid) = (call.pid, call.tid);
        if *looper.comm != *call.comm {
            looper.comm = call.comm.to_string();
        }
        looper.calls += u64::from(call.number >= 0);
        if is_wait || parks {
            looper.waits += 1;
            looper.begin_turn(call.start_ns.saturating_add(call.wall_ns));
        }
        if is_wait
            // Its descriptor need not be known.
            || (call.in_flight && is_loop_wait)
            || looper.starts_again
            || self
                .rules
                .allowed
                .iter()
                .any(|allowed| **allowed == *call.name)
        {
            return false;
        }
        let blocked_ns = call.budget.blocked_ns;
        if rule.is_some_and(|index| looper.is_within(index, blocked_ns, most_ns)) {
            return false;
        }
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
            waker_is_new: self.is_new(call, longest.and_then(|sleep| sleep.waker_tid)),
        })
    }

    fn note_birth(&mut self, call: &Call) {
        if call.ordinal == 1 && self.born.len() < MAX_THREADS {
            let born = Born {
                at_ns: call.start_ns,
                has_waited: false,
            };
            self.born.insert(call.tid, born);
        } else if call.budget.blocked_ns > self.rules.max_blocked_ns && &*call.name != "futex" {
            if let Some(born) = self.born.get_mut(&call.tid) {
                born.has_waited = true;
            }
        }
    }

    /// Whether a thread began since the loop that made the call waited for events, and has not waited itself, but
    /// for locks.
    fn is_new(&self, call: &Call, tid: Option<u32>) -> bool {
        let turn = self.threads.get(&call.tid).map(|looper| looper.turn_ns);
        let born = tid.and_then(|tid| self.born.get(&tid));
        born.is_some_and(|born| !born.has_waited && turn.is_some_and(|turn| born.at_ns >= turn))
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

impl Looper {
    fn begin_turn(&mut self, now_ns: u64) {
        self.turn_ns = now_ns;
        for waits in self.runtime.values_mut() {
            waits.turn_ns = 0;
        }
    }

    /// Counts a wait of the runtime's; whether this turn's are within what the rule allows.
    fn is_within(&mut self, rule: usize, blocked_ns: u64, most_ns: u64) -> bool {
        let waits = self.runtime.entry(rule).or_default();
        waits.turn_ns = waits.turn_ns.saturating_add(blocked_ns);
        if waits.turn_ns > most_ns {
            return false;
        }
        waits.count += 1;
        waits.blocked_ns = waits.blocked_ns.saturating_add(blocked_ns);
        waits.longest_ns = waits.longest_ns.max(blocked_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use debox::history::{Budget, Sleep};

    use super::*;

    fn call(tid: u32, name: &str, blocked_ns: u64) -> Call {
        Call {
            pid: 10,
            tid,
            comm: "server".into(),
            name: name.into(),
            number: if name == "(user)" { -1 } else { 0 },
            ordinal: 1,
            wall_ns: blocked_ns,
            budget: Budget {
                blocked_ns,
                ..Budget::default()
            },
            ..Call::default()
        }
    }

    fn watch(threads: LoopThread) -> Watch {
        Watch::new(Rules {
            threads,
            allowed: vec!["sendfile".to_string()],
            max_blocked_ns: 200_000,
            runtimes: Some(Runtimes::builtin().clone()),
        })
    }

    fn futex(tid: u32, blocked_ns: u64, stack: &str) -> Call {
        Call {
            stack: Some(stack.into()),
            ..call(tid, "futex", blocked_ns)
        }
    }

    const PARKS: &str =
        "runtime.mcall+0x4e;runtime.park_m+0x279;runtime.schedule+0xb1;runtime.findRunnable+0xd9c;\
         runtime.stopm+0x8c;runtime.notesleep+0x87;runtime.futexsleep+0x30;runtime.futex+0x23";
    const TAKES_GIL: &str =
        "main+0x1;select_epoll_poll+0x120;PyEval_RestoreThread+0x1c;take_gil+0x12e";

    #[test]
    fn a_worker_that_parks_is_a_loop_where_there_is_one() {
        let mut watch = watch(LoopThread::Auto);
        assert!(!watch.see(futex(11, 5_000_000, PARKS)));
        assert_eq!(watch.threads().count(), 0);
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
        assert!(!watch.see(futex(11, 5_000_000, PARKS)));
        assert!(!watch.see(futex(10, 5_000_000, PARKS)));
        let waits: Vec<u64> = watch.threads().map(|looper| looper.waits).collect();
        assert_eq!(waits, [2, 1]);
        assert!(watch.see(call(11, "fsync", 5_000_000)));
        assert!(watch.see(futex(11, 5_000_000, "main.main+0x1;sync.wait+0x2")));
        let longest = watch.threads().map(|looper| looper.longest_blocked_ns);
        assert_eq!(longest.collect::<Vec<u64>>(), [0, 5_000_000]);
    }

    #[test]
    fn a_runtimes_waits_have_a_limit_in_each_turn() {
        let mut watch = watch(LoopThread::Auto);
        for _ in 0..3 {
            assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
            assert!(!watch.see(futex(10, 600_000, TAKES_GIL)));
            // Those that are short enough for any call are in no sum.
            assert!(!watch.see(futex(10, 100_000, TAKES_GIL)));
        }
        assert!(watch.see(futex(10, 600_000, TAKES_GIL)));
        let rule = watch.violations[0].rule.expect("a rule");
        assert_eq!(watch.rule(rule).runtime, "CPython");
        let looper = watch.threads().next().unwrap();
        let waits = looper.runtime[&rule];
        assert_eq!(
            (waits.count, waits.blocked_ns, waits.longest_ns),
            (3, 1_800_000, 600_000)
        );
        assert_eq!(looper.longest_blocked_ns, 600_000);
    }

    #[test]
    fn who_ends_a_wait_tells_a_safepoint_from_a_lock() {
        let stack = "0x7f0000001000;libjvm.so+0xf1a3c1;___pthread_cond_wait+0x254";
        let by = |waker: &str| Call {
            sleeps: vec![Sleep {
                blocked_ns: 900_000,
                waker_comm: Some(waker.into()),
                ..Sleep::default()
            }],
            ..futex(10, 900_000, stack)
        };
        let mut watch = watch(LoopThread::Main);
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
        assert!(!watch.see(by("VM Thread")));
        assert!(watch.see(by("pool-1-thread-2")));
    }

    #[test]
    fn a_thread_that_has_just_begun_is_new() {
        let at = |start_ns: u64, call: Call| Call { start_ns, ..call };
        let started_by = |waker: u32| Call {
            sleeps: vec![Sleep {
                blocked_ns: 900_000,
                waker_tid: Some(waker),
                ..Sleep::default()
            }],
            ..futex(
                10,
                900_000,
                "main+0x1;_PyEval_EvalFrameDefault+0x8f0;PyThread_acquire_lock_timed+0x16f",
            )
        };
        let mut watch = watch(LoopThread::Auto);
        assert!(!watch.see(at(50, call(11, "set_robust_list", 0))));
        assert!(!watch.see(at(100, call(10, "epoll_wait", 9_000_000))));
        assert!(!watch.see(at(9_000_200, call(12, "set_robust_list", 0))));
        assert!(!watch.see(at(9_000_150, started_by(12))));
        assert!(!watch.see(at(9_000_300, call(13, "set_robust_list", 0))));
        assert!(!watch.see(at(9_000_400, call(13, "clock_nanosleep", 800_000))));
        assert!(watch.see(at(9_000_350, started_by(13))));
        assert!(watch.see(at(9_900_200, started_by(11))));
        // In the next turn it is not new any more.
        assert!(!watch.see(at(10_000_000, call(10, "epoll_wait", 1_000_000))));
        assert!(watch.see(at(12_000_000, started_by(12))));
    }

    #[test]
    fn strictly_there_are_no_runtimes() {
        let mut watch = watch(LoopThread::Auto);
        watch.rules.runtimes = None;
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
        assert!(watch.see(futex(10, 5_000_000, PARKS)));
        assert!(!watch.see(futex(11, 5_000_000, PARKS)));
    }

    #[test]
    fn what_comes_before_the_loop_is_start_up() {
        let mut watch = watch(LoopThread::Auto);
        assert!(!watch.see(call(10, "read", 9_000_000)));
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000_000)));
        assert!(!watch.see(call(10, "read", 200_000)));
        assert!(watch.see(call(10, "read", 200_001)));
        assert!(watch.see(call(10, "(user)", 300_000)));
        assert!(!watch.see(call(10, "sendfile", 300_000)));
        let looper = watch.threads().next().unwrap();
        assert_eq!((looper.waits, looper.calls), (1, 4));
        assert_eq!(looper.longest_blocked_ns, 300_000);
    }

    #[test]
    fn a_loop_inside_the_loop_is_no_wait_for_events() {
        let mut watch = watch(LoopThread::Auto);
        let wait = |descriptor: u64| Call {
            args: [descriptor, 0, 0],
            ..call(10, "epoll_wait", 1_000_000)
        };
        let close = |descriptor: u64| Call {
            args: [descriptor, 0, 0],
            ..call(10, "close", 1_000_000)
        };
        // One that ran before the loop, and is gone.
        assert!(!watch.see(wait(4)));
        assert!(!watch.see(close(4)));
        assert!(!watch.see(call(10, "read", 1_000_000)));
        assert!(!watch.see(wait(5)));
        assert!(watch.see(wait(7)));
        assert!(watch.see(close(7)));
        assert!(watch.see(wait(7)));
        // Nor is a poll for one descriptor, once the thread is known to have an epoll.
        assert!(watch.see(call(10, "poll", 1_000_000)));
        assert!(!watch.see(wait(5)));
    }

    #[test]
    fn helpers_are_no_loops() {
        let mut watch = watch(LoopThread::Auto);
        for _ in 0..10 {
            assert!(!watch.see(call(11, "poll", 1_000_000)));
            assert!(!watch.see(call(12, "futex", 1_000_000)));
        }
        assert_eq!(watch.threads().count(), 0);
        for _ in 0..3 {
            watch.see(call(10, "poll", 1_000_000));
        }
        assert_eq!(watch.threads().count(), 1);
    }

    #[test]
    fn threads_can_be_named() {
        for (threads, sees) in [
            (LoopThread::All, true),
            (LoopThread::Tid(11), true),
            (LoopThread::Tid(12), false),
            (LoopThread::Named("server".into()), true),
            (LoopThread::Named("other".into()), false),
            (LoopThread::Main, false),
        ] {
            let mut watch = watch(threads);
            assert_eq!(watch.see(call(11, "read", 1_000_000)), sees);
        }
    }
}
