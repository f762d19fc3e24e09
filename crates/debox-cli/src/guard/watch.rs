//! Which threads are event loops, and which of their calls blocked.

use std::collections::{BTreeMap, HashMap};

use debox::history::Call;

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

/// What counts.
pub struct Rules {
    pub threads: LoopThread,
    /// Calls that may block, beside the waits for events.
    pub allowed: Vec<String>,
    pub max_blocked_ns: u64,
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
    /// Of epoll or io_uring: the first one on which the thread waited and that is still open. A wait on
    /// another is a loop inside the loop, which keeps the outer one waiting: as `execSync` of Node does.
    own: Option<u64>,
    /// What it does is start-up until it waits on a descriptor again.
    starts_again: bool,
}

pub struct Watch {
    rules: Rules,
    threads: BTreeMap<u32, Looper>,
    /// Waits of threads that may turn out to be loops.
    candidates: HashMap<u32, u64>,
    pub violations: Vec<Call>,
    /// Violations beyond those.
    pub left_out: u64,
}

impl Watch {
    pub fn new(rules: Rules) -> Watch {
        Watch {
            rules,
            threads: BTreeMap::new(),
            candidates: HashMap::new(),
            violations: Vec::new(),
            left_out: 0,
        }
    }

    /// The threads that were looked at.
    pub fn threads(&self) -> impl Iterator<Item = &Looper> {
        self.threads.values()
    }

    /// Looks at a call; whether it is a violation, which then is the last of `violations`.
    pub fn see(&mut self, call: Call) -> bool {
        // A thread that is ending is no loop any more.
        if call.in_flight && matches!(&*call.name, "exit" | "exit_group") {
            return false;
        }
        let is_main_wait = MAIN_WAITS.contains(&&*call.name) && call.tid == call.pid;
        // io_uring_enter that does not sleep hands requests in: no wait.
        let is_loop_wait = LOOP_WAITS.contains(&&*call.name)
            && (call.name.starts_with("epoll") || call.budget.blocked_ns > 0);
        let is_known = self.threads.contains_key(&call.tid);
        if !is_known && !self.begins_loop(&call, is_main_wait || is_loop_wait) {
            return false;
        }
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
        looper.waits += u64::from(is_wait);
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
        looper.longest_blocked_ns = looper.longest_blocked_ns.max(blocked_ns);
        if blocked_ns <= self.rules.max_blocked_ns {
            return false;
        }
        if self.violations.len() >= MAX_VIOLATIONS {
            self.left_out += 1;
            return false;
        }
        self.violations.push(call);
        true
    }

    /// A thread is looked at from its first wait for events on: before, it starts.
    fn begins_loop(&mut self, call: &Call, is_wait: bool) -> bool {
        match &self.rules.threads {
            LoopThread::All => true,
            LoopThread::Main => call.tid == call.pid && is_wait,
            LoopThread::Tid(tid) => call.tid == *tid,
            LoopThread::Named(name) => *call.comm == **name,
            LoopThread::Auto if !is_wait => false,
            LoopThread::Auto if !MAIN_WAITS.contains(&&*call.name) => true,
            LoopThread::Auto => {
                let waits = self.candidates.entry(call.tid).or_default();
                *waits += 1;
                *waits >= MAIN_WAITS_NEEDED
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use debox::history::Budget;

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
        })
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
