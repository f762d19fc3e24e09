// SPDX-License-Identifier: MIT OR Apache-2.0
//! One interval, as the view needs it: every wait with what it means, and every thread with where it belongs.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use debox::live::{CpuHeld, LiveThread, LiveWait, Look};
use debox::report::CpuWaitKind;
use debox::rest::{For, Waits};
use debox::targets::place_of;
use kit_console::printable;

/// Calls by which a thread waits for events of many kinds: it is an event loop.
const LOOP_CALLS: [&str; 4] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
];

/// Classes of waits that are part of the work: for another process or for the other end of a connection.
const PEERS: [&str; 2] = ["process", "network"];

/// The most processes whose names are remembered.
const MOST_NAMES: usize = 50_000;

/// What a wait means for its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The thread has nothing to do.
    Rest,
    /// It waits for another process or a peer: part of what it does.
    Peer,
    /// It is held up.
    Harm,
    /// It is an event loop that waits for something else than its events.
    BlocksLoop,
}

/// A wait, and what it means.
#[derive(Debug, Clone)]
pub struct Fact {
    pub wait: LiveWait,
    pub meaning: Meaning,
    pub process: Rc<str>,
    pub place: Rc<str>,
}

/// A thread, and where it belongs.
#[derive(Debug, Clone)]
pub struct ThreadFact {
    pub thread: LiveThread,
    pub process: Rc<str>,
    pub place: Rc<str>,
    /// The process that had the CPU for most of the time that threads waited for one.
    pub cpu_holder: Option<Rc<str>>,
}

/// What happened in one interval.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub seconds: f64,
    pub waits: Vec<Fact>,
    pub threads: Vec<ThreadFact>,
    pub lost_waits: u64,
    pub lost_ns: u64,
    pub lost_threads: u64,
    pub took_ns: u64,
}

/// What is remembered from one interval to the next.
#[derive(Default)]
pub struct Known {
    processes: HashMap<u32, Rc<str>>,
    places: HashMap<u32, Rc<str>>,
    /// Event loops, by thread: the epoll descriptor at which each waits, if it is one. That of a loop inside the loop
    /// was opened later and is higher.
    loops: HashMap<u32, Option<u32>>,
}

impl Known {
    /// Says what a look means.
    pub fn facts(&mut self, look: Look) -> Facts {
        if self.processes.len() > MOST_NAMES {
            *self = Known::default();
        }
        for thread in &look.threads {
            if thread.has_ended {
                self.loops.remove(&thread.tid);
            } else if thread.tid == thread.pid {
                self.processes
                    .insert(thread.pid, printable(&thread.comm).into());
            }
        }
        let rests = rests(&look.waits);
        for wait in &look.waits {
            if wait.tid == wait.pid {
                self.processes
                    .insert(wait.pid, printable(&wait.comm).into());
            }
            if LOOP_CALLS.contains(&&*wait.call) {
                let own = self.loops.entry(wait.tid).or_insert(wait.events_fd);
                *own = own.iter().copied().chain(wait.events_fd).min();
            }
        }
        let holder = cpu_holder(&look.cpu);
        let mut waits = Vec::with_capacity(look.waits.len());
        for wait in look.waits {
            waits.push(Fact {
                meaning: self.meaning(&wait, &rests),
                process: self.process(wait.pid, &wait.comm),
                place: self.place(wait.pid),
                wait,
            });
        }
        let mut threads = Vec::with_capacity(look.threads.len());
        for thread in look.threads {
            threads.push(ThreadFact {
                process: self.process(thread.pid, &thread.comm),
                place: self.place(thread.pid),
                cpu_holder: holder.clone(),
                thread,
            });
        }
        Facts {
            seconds: look.to_ns.saturating_sub(look.from_ns) as f64 / 1e9,
            waits,
            threads,
            lost_waits: look.lost_waits,
            lost_ns: look.lost_ns,
            lost_threads: look.lost_threads,
            took_ns: u64::try_from(look.took.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn process(&mut self, pid: u32, comm: &str) -> Rc<str> {
        let name = self
            .processes
            .entry(pid)
            .or_insert_with(|| printable(comm).into());
        Rc::clone(name)
    }

    /// The container or unit; `-`: none.
    fn place(&mut self, pid: u32) -> Rc<str> {
        let place = self
            .places
            .entry(pid)
            .or_insert_with(|| match place_of(pid) {
                Some(place) => printable(&place).into(),
                None => "-".into(),
            });
        Rc::clone(place)
    }

    fn meaning(&self, wait: &LiveWait, rests: &HashSet<RestKey>) -> Meaning {
        let is_for_events = LOOP_CALLS.contains(&&*wait.call);
        let own_loop = self.loops.get(&wait.tid);
        if let (Some(Some(own)), Some(at)) = (own_loop, wait.events_fd) {
            if *own != at {
                return Meaning::BlocksLoop;
            }
        }
        if &*wait.class == "idle" || rests.contains(&rest_key(wait)) {
            return Meaning::Rest;
        }
        if own_loop.is_some() && !is_for_events {
            return Meaning::BlocksLoop;
        }
        match PEERS.contains(&&*wait.class) {
            true => Meaning::Peer,
            false => Meaning::Harm,
        }
    }
}

/// Waits of a process with one label for one thing: a pool's threads wait for work at a word of their own.
type RestKey = (u32, Rc<str>, Option<Rc<str>>);

fn rest_key(wait: &LiveWait) -> RestKey {
    (wait.pid, Rc::clone(&wait.label), wait.resource.clone())
}

/// The waits of processes that are for work, by the rule of the reports.
fn rests(waits: &[LiveWait]) -> HashSet<RestKey> {
    let mut sums: HashMap<RestKey, Sum> = HashMap::new();
    for wait in waits {
        let sum = sums.entry(rest_key(wait)).or_default();
        let open = u64::from(wait.open_ns.is_some());
        sum.count += wait.count + open;
        sum.open += open;
        // The whole wait counts, not only its part in this interval.
        sum.blocked_ns += wait.open_ns.unwrap_or(wait.blocked_ns.max(wait.max_ns));
        sum.is_for_lock |= wait.is_ownable;
        sum.class = Some(Rc::clone(&wait.class));
    }
    let aside = sums.into_iter().filter(|((_, label, _), sum)| {
        let waits = Waits {
            label,
            class: sum.class.as_deref().unwrap_or(""),
            count: sum.count,
            open: sum.open,
            blocked_ns: sum.blocked_ns,
            is_for_lock: sum.is_for_lock,
            is_parked: false,
        };
        waits.are_for() != For::Other
    });
    aside.map(|(key, _)| key).collect()
}

#[derive(Default)]
struct Sum {
    count: u64,
    open: u64,
    blocked_ns: u64,
    is_for_lock: bool,
    class: Option<Rc<str>>,
}

fn cpu_holder(held: &[CpuHeld]) -> Option<Rc<str>> {
    let held = held.iter().find(|held| held.kind != CpuWaitKind::Idle)?;
    let name = match (&held.comm, held.pid) {
        (Some(comm), Some(pid)) => format!("{}/{pid}", printable(comm)),
        _ => match held.kind {
            CpuWaitKind::Quota => "its CPU quota".to_string(),
            CpuWaitKind::Stolen => "the hypervisor".to_string(),
            CpuWaitKind::Many => "many processes".to_string(),
            _ => return None,
        },
    };
    Some(name.into())
}
