//! The sums over a history's rows. Memory is bounded: each table that would grow with the file has a
//! limit, and what exceeds the limit is added to one extra row, so the sums stay correct.

use rustc_hash::FxHashMap;

use crate::cpu_waits::CpuSums;
use crate::held_up::LongestWoken;
use crate::histogram::Histogram;
use crate::loopers::Looper;
use crate::names::{Name, Names, NONE, TOO_MANY};
use crate::parts::{Parts, Place};
use crate::segments::{CallSegment, Segment};
use crate::stacks::Stacks;
use crate::timeline::Timeline;
use crate::user_level::UserSums;
use crate::wait_key::WaitKey;

/// Rows of the table of waits that each reading thread keeps, at most.
const ROWS_MAX: usize = 100_000;
/// Names of calls, at most: Linux has some 500 calls, a damaged file any number.
const CALLS_MAX: usize = 1024;
const THREADS_MAX: usize = 20_000;
/// Threads whose waits that may be for work are kept over time, at most.
const RESTS_MAX: usize = 2_048;
/// Calls in flight at the end that are shown, at most.
const OPEN_MAX: usize = 40;
/// Slowest calls that are kept for each name.
const SLOWEST: usize = 8;

/// The sums over all calls of one name.
#[derive(Debug, Clone)]
pub struct CallSums {
    pub count: u64,
    /// Calls in flight at the end; `count` does not include them.
    pub in_flight: u64,
    pub parts: Parts,
    /// Part of the blocked time in waits of the class `idle`.
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
    /// The lowest score in `slowest`.
    least: u64,
    pub errors: FxHashMap<Name, u64>,
    pub timeline: Timeline,
    /// Sums over the calls that the program measured, too.
    pub user: Option<Box<UserSums>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WaitSums {
    pub count: u64,
    /// Waits that had not ended.
    pub open: u64,
    pub blocked: u64,
    pub longest: u64,
    /// When the first of them began and the last ended.
    pub first: i64,
    pub last: i64,
    /// The thread of the longest wait.
    pub tid: u32,
    pub owner_tid: Option<u32>,
    /// What ended the longest wait: its kind, the task's name and its number.
    pub waker: Option<(Name, Name)>,
    pub waker_tid: Option<u32>,
    pub many_tids: bool,
    pub many_owners: bool,
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
    /// When the last of its rows began.
    pub last: i64,
}

pub struct Aggregate {
    pub rows: u64,
    pub call_index: FxHashMap<Name, usize>,
    pub calls: Vec<(Name, CallSums)>,
    pub waits: FxHashMap<WaitKey, WaitSums>,
    pub waits_folded: u64,
    pub woken: LongestWoken,
    pub stacks: Stacks,
    pub labels: FxHashMap<(Name, Name), LabelSums>,
    /// By label: its class, and the timeline's part for that class.
    pub classes: FxHashMap<Name, (Name, usize)>,
    pub threads: Threads,
    /// By the index of the thread; none: it made no call that matters for this.
    pub loopers: Vec<Option<Box<Looper>>>,
    /// How long each process waited for what: by process and label.
    pub process_labels: FxHashMap<(u32, Name), u64>,
    pub cpu_waits: CpuSums,
    /// When threads were in waits that may be for work, by process and thread.
    pub rests: FxHashMap<(u32, u32), Timeline<1>>,
    origin: i64,
    pub first: i64,
    pub last: i64,
    pub has_irq: bool,
    /// Calls that had not returned, with the longest of them.
    pub in_flight: u64,
    pub open: Vec<Place>,
    pub segments: Vec<Segment>,
    /// Sums of the segment that is being read, by call.
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
            woken: LongestWoken::default(),
            stacks: Stacks::new(origin),
            labels: FxHashMap::default(),
            classes: FxHashMap::default(),
            threads: Threads::default(),
            loopers: Vec::new(),
            process_labels: FxHashMap::default(),
            cpu_waits: CpuSums::default(),
            rests: FxHashMap::default(),
            origin,
            first: i64::MAX,
            last: i64::MIN,
            has_irq: false,
            in_flight: 0,
            open: Vec::new(),
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
        self.calls.push((name, CallSums::new(self.origin)));
        index
    }

    pub fn add_wait(&mut self, key: WaitKey, add: &WaitSums) {
        // A full table accepts only keys that it already has.
        if self.waits.len() >= ROWS_MAX {
            if let Some(sums) = self.waits.get_mut(&key) {
                sums.merge(add);
                return;
            }
            let coarse = self.coarse(key);
            if coarse != key {
                self.waits_folded += add.count;
            }
            self.insert_wait(coarse, add);
            return;
        }
        self.insert_wait(key, add);
    }

    fn insert_wait(&mut self, key: WaitKey, add: &WaitSums) {
        let sums = self.waits.entry(key).or_insert(WaitSums {
            tid: add.tid,
            owner_tid: add.owner_tid,
            first: add.first,
            last: add.last,
            ..WaitSums::default()
        });
        sums.merge(add);
    }

    /// A coarser key: first without the resource, which can have any number of values; if that does
    /// not suffice, without the waiting thread and the caller.
    fn coarse(&self, key: WaitKey) -> WaitKey {
        let coarse = WaitKey {
            resource: TOO_MANY,
            ..key
        };
        if self.waits.len() < 2 * ROWS_MAX || self.waits.contains_key(&coarse) {
            return coarse;
        }
        WaitKey {
            resource: TOO_MANY,
            caller: TOO_MANY,
            owner: NONE,
            doing: NONE,
            certainty: NONE,
            comm: TOO_MANY,
            is_main: false,
            thread: None,
            ..key
        }
    }

    /// Adds a call that was in flight at the end.
    pub fn add_open(&mut self, place: Place) {
        self.in_flight += 1;
        self.open.push(place);
        if self.open.len() >= 2 * OPEN_MAX {
            self.keep_longest_open();
        }
    }

    pub fn keep_longest_open(&mut self) {
        self.open
            .sort_unstable_by_key(|place| std::cmp::Reverse(rank(place)));
        self.open.truncate(OPEN_MAX);
    }

    pub fn add_label(&mut self, call: Name, label: Name, add: &LabelSums) {
        let full = self.labels.len() >= ROWS_MAX && !self.labels.contains_key(&(call, label));
        let label = if full { TOO_MANY } else { label };
        let sums = self.labels.entry((call, label)).or_default();
        sums.sleeps += add.sleeps;
        sums.calls += add.calls;
        sums.blocked = sums.blocked.saturating_add(add.blocked);
    }

    /// What is known of a thread as an event loop, by the thread's index.
    #[inline]
    pub fn looper(&mut self, at: usize) -> &mut Looper {
        if self.loopers.len() <= at {
            self.loopers.resize_with(at + 1, || None);
        }
        self.loopers[at].get_or_insert_default()
    }

    /// The class of a label.
    pub fn class_of(&self, label: Name, names: &Names) -> String {
        let class = self.classes.get(&label);
        let name = class.map_or(NONE, |(class, _)| *class);
        names.get(name).to_string()
    }

    /// Adds a process's waits with a label.
    pub fn add_process_label(&mut self, process: u32, label: Name, ns: u64) {
        let full = self.process_labels.len() >= ROWS_MAX
            && !self.process_labels.contains_key(&(process, label));
        // The label stays out of the process's row; the time is in its budget.
        if !full {
            let sum = self.process_labels.entry((process, label)).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// Adds a wait of a thread that may be for work.
    pub fn add_rest(&mut self, thread: (u32, u32), begin: i64, ns: u64) {
        if self.rests.len() >= RESTS_MAX && !self.rests.contains_key(&thread) {
            return;
        }
        let origin = self.origin;
        let line = self.rests.entry(thread);
        let line = line.or_insert_with(|| Timeline::new(origin));
        line.add(begin, ns, 0, ns);
    }

    /// What all threads did over time, in calls and between them.
    pub fn timeline(&self) -> Timeline {
        let mut all = Timeline::new(self.origin);
        for (_, sums) in &self.calls {
            all.merge(&sums.timeline);
        }
        all
    }

    /// Adds the sums of another reading thread.
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
        self.woken.merge(other.woken);
        self.stacks.merge(other.stacks);
        for ((call, label), sums) in &other.labels {
            self.add_label(*call, *label, sums);
        }
        self.classes.extend(other.classes);
        for (at, (tid, sums)) in other.threads.sums.iter().enumerate() {
            let to = self.threads.add(*tid, sums);
            let looper = other.loopers.get(at).and_then(|looper| looper.as_deref());
            if let (Some(to), Some(looper)) = (to, looper) {
                self.looper(to).merge(looper);
            }
        }
        self.threads.left_out += other.threads.left_out;
        for ((process, label), ns) in &other.process_labels {
            self.add_process_label(*process, *label, *ns);
        }
        self.cpu_waits.merge(&other.cpu_waits);
        for (thread, line) in &other.rests {
            let full = self.rests.len() >= RESTS_MAX && !self.rests.contains_key(thread);
            if !full {
                let origin = self.origin;
                let sum = self.rests.entry(*thread);
                sum.or_insert_with(|| Timeline::new(origin)).merge(line);
            }
        }
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.has_irq |= other.has_irq;
        self.in_flight += other.in_flight;
        self.open.extend(other.open);
        self.segments.extend(other.segments);
    }
}

/// Size of the cache of recently used threads.
const RECENT: usize = 64;

/// The sums of each thread.
#[derive(Debug)]
pub struct Threads {
    /// By process and thread: a thread number can be reused by another process.
    index: FxHashMap<(u32, u32), usize>,
    pub sums: Vec<(u32, ThreadSums)>,
    /// Cache of indices into `sums`, by the low bits of the thread number; most are current.
    recent: [usize; RECENT],
    /// Calls of threads beyond the limit, which have no sums.
    pub left_out: u64,
}

impl Default for Threads {
    fn default() -> Self {
        Threads {
            index: FxHashMap::default(),
            sums: Vec::new(),
            recent: [0; RECENT],
            left_out: 0,
        }
    }
}

impl Threads {
    /// Returns the thread's index, if there is room for it.
    #[inline]
    pub fn add(&mut self, tid: u32, add: &ThreadSums) -> Option<usize> {
        let recent = &mut self.recent[tid as usize % RECENT];
        if self
            .sums
            .get(*recent)
            .is_none_or(|(known, sums)| (sums.pid, *known) != (add.pid, tid))
        {
            let full = self.sums.len() >= THREADS_MAX;
            match self.index.get(&(add.pid, tid)) {
                Some(index) => *recent = *index,
                None if full => {
                    self.left_out += add.calls;
                    return None;
                }
                None => {
                    *recent = self.sums.len();
                    self.index.insert((add.pid, tid), *recent);
                    let sums = ThreadSums {
                        pid: add.pid,
                        ..ThreadSums::default()
                    };
                    self.sums.push((tid, sums));
                }
            }
        }
        let sums = &mut self.sums[*recent].1;
        sums.comm = add.comm;
        sums.calls += add.calls;
        sums.parts.add(&add.parts);
        sums.idle = sums.idle.saturating_add(add.idle);
        sums.last = sums.last.max(add.last);
        Some(*recent)
    }
}

impl WaitSums {
    pub fn merge(&mut self, add: &WaitSums) {
        self.many_tids |= add.many_tids || self.tid != add.tid;
        self.many_owners |= add.many_owners || self.owner_tid != add.owner_tid;
        self.first = self.first.min(add.first);
        self.last = self.last.max(add.last);
        self.count += add.count;
        self.open += add.open;
        self.blocked = self.blocked.saturating_add(add.blocked);
        if (add.longest, add.tid) >= (self.longest, self.tid) {
            self.longest = add.longest;
            self.tid = add.tid;
            self.owner_tid = add.owner_tid;
            self.waker = add.waker;
            self.waker_tid = add.waker_tid;
        }
    }
}

impl CallSums {
    fn new(origin: i64) -> CallSums {
        CallSums {
            count: 0,
            in_flight: 0,
            parts: Parts::default(),
            idle: 0,
            spin: 0,
            faults_minor: 0,
            faults_major: 0,
            restarted: 0,
            partial: 0,
            slept: 0,
            left_out: 0,
            histogram: Histogram::default(),
            slowest: Vec::new(),
            least: 0,
            errors: FxHashMap::default(),
            timeline: Timeline::new(origin),
            user: None,
        }
    }

    fn merge(&mut self, other: &CallSums) {
        self.count += other.count;
        self.in_flight += other.in_flight;
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
        self.timeline.merge(&other.timeline);
        if let Some(user) = &other.user {
            self.user.get_or_insert_default().merge(user);
        }
        for place in &other.slowest {
            self.offer(*place);
        }
        for (error, count) in &other.errors {
            *self.errors.entry(*error).or_default() += count;
        }
    }

    /// Keeps the place if it is one of the slowest.
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

/// The sort order. The earlier of two equally slow calls wins, so the result does not depend on
/// which thread read it.
fn rank(place: &Place) -> (u64, std::cmp::Reverse<(u32, u32)>) {
    (place.score, std::cmp::Reverse((place.group, place.row)))
}
