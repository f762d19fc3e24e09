// SPDX-License-Identifier: MIT OR Apache-2.0
//! One interval, as the view needs it: every wait with what it means, and every thread with where it belongs.

use std::rc::Rc;

use debox::live::{CpuHeld, LiveThread, LiveWait, Look};
use debox::report::CpuWaitKind;
use debox::rest::{For, Waits};
use foldhash::HashMap;
use kit_console::printable;

use super::loops::{Loops, Place, Running};
use super::process_names::{Inside, ProcessNames};

/// Classes of waits that are part of the work: for another process or for the other end of a connection.
const PEERS: [&str; 2] = ["process", "network"];

/// The label of waits for the events of a loop inside the loop.
const INNER_LOOP: &str = "another loop inside";

/// The class of waits for disks.
const DISK: &str = "disk";

/// The label and class of waits of a thread that serves one connection, for another process of its program.
const LATCH: (&str, &str) = ("another process (epoll)", "process");

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
    /// Of a wait for a disk: the process that had most of the requests to that disk, if it is another one.
    pub disk_user: Option<DiskUser>,
    pub process: Rc<str>,
    pub place: Rc<str>,
    pub inside: Inside,
}

/// A process that keeps a disk busy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUser {
    pub pid: u32,
    pub name: Rc<str>,
}

/// A thread, and where it belongs.
#[derive(Debug, Clone)]
pub struct ThreadFact {
    pub thread: LiveThread,
    pub process: Rc<str>,
    pub place: Rc<str>,
    pub inside: Inside,
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
    pub names: ProcessNames,
    loops: Loops,
}

impl Known {
    /// Says what a look means.
    pub fn facts(&mut self, look: Look) -> Facts {
        self.names.take_in(&look);
        self.loops.take_in(&look.waits, &look.threads, &mut Running);
        let are_for = purposes(&look.waits);
        let holder = cpu_holder(&look.cpu);
        let users = self.disk_users(&look.waits);
        let mut waits = Vec::with_capacity(look.waits.len());
        for mut wait in look.waits {
            let place = self.loops.place(&wait);
            let meaning = meaning(&wait, place, &are_for);
            match place {
                Place::Latch => (wait.label, wait.class) = (LATCH.0.into(), LATCH.1.into()),
                Place::InnerLoop => wait.label = INNER_LOOP.into(),
                _ => {}
            }
            let user = wait.device.filter(|_| &*wait.class == DISK);
            let user = user.and_then(|device| users.get(&device));
            waits.push(Fact {
                meaning,
                disk_user: user.filter(|user| user.pid != wait.pid).cloned(),
                process: self.names.process(wait.pid, &wait.comm),
                place: self.names.place(wait.pid),
                inside: self.names.inside(wait.pid, wait.tid),
                wait,
            });
        }
        let mut threads = Vec::with_capacity(look.threads.len());
        for thread in look.threads {
            threads.push(ThreadFact {
                process: self.names.process(thread.pid, &thread.comm),
                place: self.names.place(thread.pid),
                inside: self.names.inside(thread.pid, thread.tid),
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

    /// By device: the process that has more than half of the time of all waits for it. The time that requests take
    /// together is the average number of requests that are there, so this is who fills the queue.
    fn disk_users(&mut self, waits: &[LiveWait]) -> HashMap<u32, DiskUser> {
        let mut sums: HashMap<u32, HashMap<u32, (u64, Rc<str>)>> = HashMap::default();
        for wait in waits.iter().filter(|wait| &*wait.class == DISK) {
            let Some(device) = wait.device else { continue };
            let users = sums.entry(device).or_default();
            let (ns, _) = users
                .entry(wait.pid)
                .or_insert_with(|| (0, Rc::clone(&wait.comm)));
            *ns += wait.blocked_ns;
        }
        let users = sums.into_iter().filter_map(|(device, users)| {
            let all: u64 = users.values().map(|(ns, _)| ns).sum();
            let (pid, (ns, comm)) = users.into_iter().max_by_key(|(pid, (ns, _))| (*ns, *pid))?;
            let name = self.names.process(pid, &comm);
            (ns > all / 2).then_some((device, DiskUser { pid, name }))
        });
        users.collect()
    }
}

fn meaning(wait: &LiveWait, place: Place, are_for: &HashMap<Purpose, For>) -> Meaning {
    match place {
        Place::Inside | Place::InnerLoop => return Meaning::BlocksLoop,
        Place::Events => return Meaning::Rest,
        Place::Latch => return Meaning::Peer,
        Place::Outside => {}
    }
    match are_for.get(&purpose(wait)) {
        Some(For::Idle | For::Work | For::CannotTell) => Meaning::Rest,
        Some(For::Exchange) => Meaning::Peer,
        _ if PEERS.contains(&&*wait.class) => Meaning::Peer,
        _ => Meaning::Harm,
    }
}

/// Waits of a process with one label for one thing: a pool's threads wait for work at a word of their own.
type Purpose = (u32, Rc<str>, Option<Rc<str>>);

fn purpose(wait: &LiveWait) -> Purpose {
    (wait.pid, Rc::clone(&wait.label), wait.resource.clone())
}

/// What the waits of processes are for, by the rule of the reports.
fn purposes(waits: &[LiveWait]) -> HashMap<Purpose, For> {
    let mut sums: HashMap<Purpose, Sum> = HashMap::default();
    for wait in waits {
        let sum = sums.entry(purpose(wait)).or_default();
        let open = u64::from(wait.open_ns.is_some());
        sum.count += wait.count + open;
        sum.open += open;
        // The whole wait counts, not only its part in this interval.
        sum.blocked_ns += wait.open_ns.unwrap_or(wait.blocked_ns.max(wait.max_ns));
        sum.is_for_lock |= wait.is_ownable;
        sum.class = Some(Rc::clone(&wait.class));
    }
    let judged = sums.into_iter().map(|(purpose, sum)| {
        let waits = Waits {
            label: &purpose.1,
            class: sum.class.as_deref().unwrap_or(""),
            count: sum.count,
            open: sum.open,
            blocked_ns: sum.blocked_ns,
            is_for_lock: sum.is_for_lock,
            is_parked: false,
        };
        let is_for = waits.are_for();
        (purpose, is_for)
    });
    judged.collect()
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
