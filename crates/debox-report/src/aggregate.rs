//! The sums over a history's rows. Memory is bounded: tables that would grow with the file have a
//! limit, and what is beyond it is added to a row of its own, so that the sums stay true.

use rustc_hash::FxHashMap;

use crate::histogram::Histogram;
use crate::names::{Name, NONE, TOO_MANY};
use crate::segments::{CallSegment, Segment};
use crate::timeline::Timeline;

/// Rows of the tables of waits and stacks, at most, for each thread that reads.
const ROWS_MAX: usize = 100_000;
/// Different calls: Linux has some 500, a damaged file any number.
const CALLS_MAX: usize = 1024;
const THREADS_MAX: usize = 20_000;
/// Slowest calls that are kept of each.
const SLOWEST: usize = 8;

/// The parts of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    pub wall: u64,
    pub cpu: u64,
    pub blocked: u64,
    pub runqueue: u64,
    pub preempted: u64,
    pub irq: u64,
}

impl Parts {
    /// Sums stay at the end of the range rather than begin anew: a damaged file may say anything.
    pub fn add(&mut self, other: &Parts) {
        self.wall = self.wall.saturating_add(other.wall);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.runqueue = self.runqueue.saturating_add(other.runqueue);
        self.preempted = self.preempted.saturating_add(other.preempted);
        self.irq = self.irq.saturating_add(other.irq);
    }
}

/// Of all calls of one name.
#[derive(Debug, Clone, Default)]
pub struct CallSums {
    pub count: u64,
    pub parts: Parts,
    /// Of the blocked time: in waits of the class idle.
    pub idle: u64,
    pub spin: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    pub restarted: u64,
    pub partial: u64,
    /// Calls that slept.
    pub slept: u64,
    pub left_out: u64,
    pub histogram: Histogram,
    pub slowest: Vec<Place>,
    /// The least score among them.
    least: u64,
    pub errors: FxHashMap<Name, u64>,
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// By what it is ranked: wall time without idle waits.
    pub score: u64,
    pub group: u32,
    pub row: u32,
}

/// Who waited for what, in which call, from where, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    pub comm: Name,
    pub is_main: bool,
    pub call: Name,
    pub label: Name,
    pub resource: Name,
    pub caller: Name,
    pub certainty: Name,
    pub owner: Name,
    pub doing: Name,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WaitSums {
    pub count: u64,
    pub blocked: u64,
    pub longest: u64,
    /// Of the longest.
    pub tid: u32,
    pub owner_tid: Option<u32>,
    pub waker: Option<(Name, Name)>,
    pub many_tids: bool,
    pub many_owners: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    /// The program's stack, or where there is none the caller.
    pub stack: Name,
    pub call: Name,
    pub label: Name,
    /// The kernel's, or where there is none the site.
    pub kernel: Name,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct LabelSums {
    pub sleeps: u64,
    pub calls: u64,
    pub blocked: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadSums {
    pub pid: u32,
    pub comm: Name,
    pub calls: u64,
    pub parts: Parts,
    pub idle: u64,
}

pub struct Aggregate {
    pub rows: u64,
    pub call_index: FxHashMap<Name, usize>,
    pub calls: Vec<(Name, CallSums)>,
    pub waits: FxHashMap<WaitKey, WaitSums>,
    pub waits_folded: u64,
    pub stacks: FxHashMap<StackKey, (u64, u64)>,
    pub stacks_folded: u64,
    pub labels: FxHashMap<(Name, Name), LabelSums>,
    pub classes: FxHashMap<Name, Name>,
    pub threads: FxHashMap<u32, ThreadSums>,
    pub threads_left_out: u64,
    pub timeline: Timeline,
    pub first: i64,
    pub last: i64,
    pub has_irq: bool,
    pub segments: Vec<Segment>,
    /// Of the segment that is being read, by call.
    pub current: Vec<CallSegment>,
}

impl Aggregate {
    pub fn new(origin: i64) -> Aggregate {
        Aggregate {
            rows: 0,
            call_index: FxHashMap::default(),
            calls: Vec::new(),
            waits: FxHashMap::default(),
            waits_folded: 0,
            stacks: FxHashMap::default(),
            stacks_folded: 0,
            labels: FxHashMap::default(),
            classes: FxHashMap::default(),
            threads: FxHashMap::default(),
            threads_left_out: 0,
            timeline: Timeline::new(origin),
            first: i64::MAX,
            last: i64::MIN,
            has_irq: false,
            segments: Vec::new(),
            current: Vec::new(),
        }
    }

    pub fn call(&mut self, name: Name) -> usize {
        if let Some(index) = self.call_index.get(&name) {
            return *index;
        }
        if self.calls.len() >= CALLS_MAX && name != TOO_MANY {
            return self.call(TOO_MANY);
        }
        let index = self.calls.len();
        self.call_index.insert(name, index);
        self.calls.push((name, CallSums::default()));
        index
    }

    pub fn add_wait(&mut self, key: WaitKey, add: &WaitSums) {
        let key = self.wait_key(key, add.count);
        let sums = self.waits.entry(key).or_insert(WaitSums {
            tid: add.tid,
            owner_tid: add.owner_tid,
            ..WaitSums::default()
        });
        sums.many_tids |= add.many_tids || sums.tid != add.tid;
        sums.many_owners |= add.many_owners || sums.owner_tid != add.owner_tid;
        sums.count += add.count;
        sums.blocked = sums.blocked.saturating_add(add.blocked);
        if (add.longest, add.tid) >= (sums.longest, sums.tid) {
            sums.longest = add.longest;
            sums.tid = add.tid;
            sums.owner_tid = add.owner_tid;
            sums.waker = add.waker;
        }
    }

    /// The key, or when the table is full a coarser one: first without the resource, of which there
    /// may be any number; then without who waited and from where.
    fn wait_key(&mut self, key: WaitKey, count: u64) -> WaitKey {
        if self.waits.len() < ROWS_MAX || self.waits.contains_key(&key) {
            return key;
        }
        let coarse = WaitKey {
            resource: TOO_MANY,
            ..key
        };
        if self.waits.len() < 2 * ROWS_MAX || self.waits.contains_key(&coarse) {
            if coarse != key {
                self.waits_folded += count;
            }
            return coarse;
        }
        self.waits_folded += count;
        WaitKey {
            resource: TOO_MANY,
            caller: TOO_MANY,
            owner: NONE,
            doing: NONE,
            certainty: NONE,
            comm: TOO_MANY,
            is_main: false,
            ..key
        }
    }

    pub fn add_stack(&mut self, key: StackKey, blocked: u64, count: u64) {
        let key = if self.stacks.len() >= ROWS_MAX && !self.stacks.contains_key(&key) {
            self.stacks_folded += count;
            StackKey {
                stack: TOO_MANY,
                kernel: TOO_MANY,
                ..key
            }
        } else {
            key
        };
        let sums = self.stacks.entry(key).or_default();
        sums.0 = sums.0.saturating_add(blocked);
        sums.1 += count;
    }

    pub fn add_label(&mut self, call: Name, label: Name, add: &LabelSums) {
        let full = self.labels.len() >= ROWS_MAX && !self.labels.contains_key(&(call, label));
        let label = if full { TOO_MANY } else { label };
        let sums = self.labels.entry((call, label)).or_default();
        sums.sleeps += add.sleeps;
        sums.calls += add.calls;
        sums.blocked = sums.blocked.saturating_add(add.blocked);
    }

    pub fn add_thread(&mut self, tid: u32, add: &ThreadSums) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.threads_left_out += add.calls;
            return;
        }
        let sums = self.threads.entry(tid).or_default();
        sums.pid = add.pid;
        sums.comm = add.comm;
        sums.calls += add.calls;
        sums.parts.add(&add.parts);
        sums.idle = sums.idle.saturating_add(add.idle);
    }

    /// What another thread has read.
    pub fn merge(&mut self, other: Aggregate) {
        self.rows += other.rows;
        for (name, sums) in other.calls {
            let index = self.call(name);
            self.calls[index].1.merge(&sums);
        }
        let mut waits: Vec<_> = other.waits.into_iter().collect();
        waits.sort_unstable_by_key(|(key, _)| *key);
        for (key, sums) in &waits {
            self.add_wait(*key, sums);
        }
        self.waits_folded += other.waits_folded;
        let mut stacks: Vec<_> = other.stacks.into_iter().collect();
        stacks.sort_unstable_by_key(|(key, _)| *key);
        for (key, (blocked, count)) in stacks {
            self.add_stack(key, blocked, count);
        }
        self.stacks_folded += other.stacks_folded;
        for ((call, label), sums) in &other.labels {
            self.add_label(*call, *label, sums);
        }
        self.classes.extend(other.classes);
        for (tid, sums) in &other.threads {
            self.add_thread(*tid, sums);
        }
        self.threads_left_out += other.threads_left_out;
        self.timeline.merge(other.timeline);
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.has_irq |= other.has_irq;
        self.segments.extend(other.segments);
    }
}

impl CallSums {
    fn merge(&mut self, other: &CallSums) {
        self.count += other.count;
        self.parts.add(&other.parts);
        self.idle = self.idle.saturating_add(other.idle);
        self.spin = self.spin.saturating_add(other.spin);
        self.faults_minor += other.faults_minor;
        self.faults_major += other.faults_major;
        self.restarted += other.restarted;
        self.partial += other.partial;
        self.slept += other.slept;
        self.left_out += other.left_out;
        self.histogram.merge(&other.histogram);
        for place in &other.slowest {
            self.offer(*place);
        }
        for (error, count) in &other.errors {
            *self.errors.entry(*error).or_default() += count;
        }
    }

    /// Keeps the place if it is among the slowest.
    #[inline]
    pub fn offer(&mut self, place: Place) {
        if self.slowest.len() < SLOWEST {
            self.slowest.push(place);
            self.least = self
                .slowest
                .iter()
                .map(|kept| kept.score)
                .min()
                .unwrap_or(0);
            return;
        }
        if place.score < self.least {
            return;
        }
        let least = self
            .slowest
            .iter_mut()
            .min_by_key(|kept| rank(kept))
            .expect("there are some");
        if rank(&place) > rank(least) {
            *least = place;
        }
        self.least = self
            .slowest
            .iter()
            .map(|kept| kept.score)
            .min()
            .unwrap_or(0);
    }
}

/// Of two that took as long, the earlier: whatever thread read it.
fn rank(place: &Place) -> (u64, std::cmp::Reverse<(u32, u32)>) {
    (place.score, std::cmp::Reverse((place.group, place.row)))
}
