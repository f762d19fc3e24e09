//! Finds threads that wait for each other in a circle, and who holds what a thread waits for now.
//!
//! The probes see who holds a lock when a wait for it begins. A wait that is older than the monitoring, and a
//! circle that closes later, are examined from outside: the call that a thread sleeps in, its arguments, and
//! the words in its process's memory that they refer to.
//!
//! A circle is accepted if it is read twice with the same result, and no thread in it has left the CPU again
//! in between: then all of them were asleep at the moment between the two readings. Only the thread that
//! holds a lock can release it, and that thread was asleep, so the second reading was true at that moment.

mod circle;
mod locks;
pub(crate) mod tasks;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

pub(crate) use locks::Kind;
use locks::{Futex, Held};
use tasks::{Call, Task};

const NR_FCNTL: u32 = 72;
const NR_FLOCK: u32 = 73;
const NR_FUTEX: u32 = 202;

/// The first look comes early, for programs that run only briefly;
const FIRST: Duration = Duration::from_millis(300);
/// later ones do not take more than this part of the time.
const EVERY: Duration = Duration::from_secs(1);
const COST_PART: u32 = 50;
/// The most threads that are examined.
const MAX_THREADS: usize = 4096;
/// The most circles that are kept.
const MAX_CIRCLES: usize = 32;

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A word in the process's memory.
    Word(u64),
    /// A file, by the process's descriptor for it.
    File { fd: i32, id: String },
}

/// A thread's wait for what another one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub call: u32,
    pub kind: Kind,
    pub place: Place,
    /// The call's first argument: a futex's word need not be where its lock begins.
    pub word: u64,
    pub has_timeout: bool,
    pub holder: u32,
    pub holder_comm: String,
    /// How often the thread had slept at that time.
    pub switches: u64,
}

/// Whether the call may wait for something that can be held.
pub(crate) fn may_wait(call: u32) -> bool {
    matches!(call, NR_FCNTL | NR_FLOCK | NR_FUTEX)
}

impl Wait {
    /// What the threads of a process wait for now.
    pub fn all_of(pid: u32) -> Vec<Wait> {
        let threads = tasks::threads(pid).into_iter();
        threads.take(MAX_THREADS).filter_map(Wait::of).collect()
    }

    /// What the thread waits for now, if the holder is known.
    pub fn of(tid: u32) -> Option<Wait> {
        let task = Task::read(tid)?;
        let call = Call::of(tid)?;
        let (kind, place, has_timeout, holder) = match call.number {
            NR_FUTEX => futex(&task, &call)?,
            NR_FLOCK => file(&task, &call, Kind::Flock)?,
            NR_FCNTL if call.args[1] == libc::F_SETLKW as u64 => {
                file(&task, &call, Kind::PosixLock)?
            }
            _ => return None,
        };
        // The thread has slept all the time.
        let is_same = Call::of(tid) == Some(call)
            && Task::read(tid).is_some_and(|again| again.switches == task.switches);
        is_same.then_some(Wait {
            pid: task.pid,
            tid,
            comm: task.comm,
            call: call.number,
            kind,
            place,
            word: call.args[0],
            has_timeout,
            holder: holder.tid,
            holder_comm: holder.comm,
            switches: task.switches,
        })
    }

    /// False for the end of a thread, which is not a lock.
    pub fn is_for_lock(&self) -> bool {
        self.kind != Kind::ThreadEnd
    }

    /// Whether only the holder can release it.
    fn is_held_alone(&self) -> bool {
        match &self.place {
            Place::File { id, .. } if self.kind == Kind::Flock => {
                !tasks::is_passed_on(self.holder, id)
            }
            _ => true,
        }
    }
}

fn futex(task: &Task, call: &Call) -> Option<(Kind, Place, bool, Task)> {
    let futex = Futex::of(&call.args);
    let Held {
        kind,
        holder,
        is_private,
        address,
    } = futex.held(tasks::read_memory(task.pid)?)?;
    let holder = task.named(holder, is_private)?;
    let maps_it = || holder.pid == task.pid || tasks::shares_memory(task.pid, address, holder.pid);
    let is_held = is_private || maps_it();
    is_held.then_some((kind, Place::Word(address), futex.has_timeout, holder))
}

/// A file lock. It is held by a process: which of several threads will release it is unknown.
fn file(task: &Task, call: &Call, kind: Kind) -> Option<(Kind, Place, bool, Task)> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (wanted, holder) = tasks::file_lock(&locks, task.pid, kind == Kind::Flock)?;
    let holder = Task::read(holder).filter(|holder| holder.threads == 1)?;
    let place = Place::File {
        fd: call.args[0] as i32,
        id: wanted.file,
    };
    Some((kind, place, false, holder))
}

/// A circle of threads: each waits for the next one, and the last for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Circle {
    pub waits: Vec<Wait>,
    /// Other threads that wait for these.
    pub behind: usize,
}

/// Looks for circles from time to time.
pub(crate) struct Watch {
    due: Instant,
    /// Threads that wait for something without a known holder, and since when they have been asleep.
    idle: HashSet<(u32, u64)>,
    /// The threads of the circles found so far, and how often they had slept.
    found: BTreeSet<Vec<(u32, u64)>>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            due: Instant::now() + FIRST,
            idle: HashSet::new(),
            found: BTreeSet::new(),
        }
    }
}

impl Watch {
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// New circles among the threads of some processes and the threads that these wait for.
    pub fn look_at(&mut self, processes: &[u32]) -> Vec<Circle> {
        self.idle.clear();
        let threads = processes.iter().flat_map(|pid| tasks::threads(*pid));
        let threads: Vec<(u32, u64)> = threads.map(|tid| (tid, 0)).collect();
        let circles = self.look(&threads);
        self.idle.clear();
        circles
    }

    /// New circles among threads, each given with the time since when it has slept, and the threads that
    /// these wait for.
    pub fn look(&mut self, sleepers: &[(u32, u64)]) -> Vec<Circle> {
        let begin = Instant::now();
        let mut waits = BTreeMap::new();
        let mut idle = HashSet::new();
        for sleeper in sleepers.iter().take(MAX_THREADS) {
            let wait = match self.idle.contains(sleeper) {
                true => None,
                false => Wait::of(sleeper.0),
            };
            match wait {
                Some(wait) => drop(waits.insert(sleeper.0, wait)),
                None => drop(idle.insert(*sleeper)),
            }
        }
        self.idle = idle;
        add_holders(&mut waits);
        let circles = self.circles(&waits);
        self.due = Instant::now() + EVERY.max(begin.elapsed() * COST_PART);
        circles
    }

    fn circles(&mut self, waits: &BTreeMap<u32, Wait>) -> Vec<Circle> {
        let ways = waits.iter().map(|(tid, wait)| (*tid, wait.holder));
        let ways: BTreeMap<u32, u32> = ways.collect();
        let mut circles = Vec::new();
        for circle in circle::find(&ways) {
            let members: Vec<Wait> = circle.iter().map(|tid| waits[tid].clone()).collect();
            let mut name: Vec<(u32, u64)> = members
                .iter()
                .map(|wait| (wait.tid, wait.switches))
                .collect();
            name.sort_unstable();
            let is_known = self.found.contains(&name) || self.found.len() >= MAX_CIRCLES;
            let is_same = |wait: &Wait| Wait::of(wait.tid).as_ref() == Some(wait);
            let is_true =
                !is_known && members.iter().all(Wait::is_held_alone) && members.iter().all(is_same);
            if is_true {
                self.found.insert(name);
                circles.push(Circle {
                    waits: members,
                    behind: circle::behind(&ways, &circle),
                });
            }
        }
        circles
    }
}

/// Adds the holders' own waits: a holder may wait itself, whether it is monitored or not.
fn add_holders(waits: &mut BTreeMap<u32, Wait>) {
    let mut holders: Vec<u32> = waits.values().map(|wait| wait.holder).collect();
    let mut seen = BTreeSet::new();
    while let Some(holder) = holders.pop() {
        if waits.len() >= MAX_THREADS || waits.contains_key(&holder) || !seen.insert(holder) {
            continue;
        }
        if let Some(wait) = Wait::of(holder) {
            holders.push(wait.holder);
            waits.insert(holder, wait);
        }
    }
}

#[cfg(test)]
mod tests;
