//! The causes of slow requests: what the server's threads waited for, and computed, while these requests were in
//! flight.
//!
//! Which thread serves a request is not visible from outside. The slow requests are therefore compared with
//! intervals of the same lengths at random times of the run. What blocks threads all the time also blocks them in
//! those intervals, and is no cause. What blocks them more while slow requests are in flight is a cause.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::rows::{Name, Names, Row, Sleep, NONE};
use super::Span;
use crate::request::{Request, Run};

/// Requests of each kind that are analyzed; of more, an evenly spaced selection.
const REQUESTS_MAX: usize = 10_000;
/// Random intervals that are analyzed, at least, so that chance has little influence.
const ANYTIME_MIN: usize = 2_000;
/// Fixed, so that the same file gives the same figures.
const SEED: u64 = 33;
/// Sleeps that are kept, at most.
const SLEEPS_MAX: usize = 1 << 24;
/// Kinds of waits that are listed, at most.
const CAUSES_MAX: usize = 20;
/// Resources and their holders that are distinguished for each kind of wait, at most.
const THINGS_MAX: usize = 256;
/// Label of waits for a CPU.
const FOR_CPU: &str = "a CPU";
/// Label of time on a CPU, and its number.
const COMPUTING_TEXT: &str = "computing";
const COMPUTING: Name = NONE - 1;
/// The name of time between calls.
const BETWEEN_CALLS: &str = "(user)";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Causes {
    /// Requests slower than this percentile are the slow ones; ordinary ones are from the 25th to the 75th.
    pub percent: f64,
    pub slow: Requests,
    pub ordinary: Requests,
    /// Slow requests that were analyzed.
    pub looked_at: u64,
    /// Slow requests that are not completely within the recorded time.
    pub outside: u64,
    pub causes: Vec<Cause>,
    /// The part of a slow request's time that the causes which explain a tenth or more explain together: by how
    /// much longer a thread was in any of them than in random intervals.
    pub explained: f64,
    /// Kinds of waits that are not listed.
    pub left_out: u64,
    /// Sleeps that did not fit into memory.
    pub sleeps_left_out: u64,
}

/// Averages over requests of one kind, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Requests {
    pub requests: u64,
    pub shortest_ns: u64,
    /// From sending to the last byte.
    pub mean_ns: f64,
    /// Time from when the request was due until it was sent.
    pub unsent_ns: f64,
    /// Time in which any thread of the server was blocked, except in idle waits.
    pub blocked_ns: f64,
}

/// Waits of the same threads, in the same call, with the same label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    pub comm: String,
    pub call: String,
    pub label: String,
    pub class: String,
    pub threads: u64,
    /// Slow requests during which a thread waited like this, and their part of all slow requests.
    pub requests: u64,
    pub part: f64,
    /// Average time in a slow request, and in an ordinary one, of the thread that waited longest.
    pub slow_ns: f64,
    pub ordinary_ns: f64,
    /// The same in intervals of slow requests' lengths at random times.
    pub anytime_ns: f64,
    /// By how much longer it is in a slow request than in a random interval.
    pub excess_ns: f64,
    /// The part of a slow request's time that the excess makes up.
    pub explains: f64,
    /// The longest time in one request.
    pub longest_ns: u64,
    /// The resource that was waited for most, and who held it most.
    pub resource: Option<String>,
    pub owner: Option<String>,
    /// Whether one of its threads is an event loop, which waits for events of many descriptors.
    #[serde(skip)]
    pub is_loop: bool,
}

/// A cause explains slow requests if its excess is at least this part of their time.
const EXPLAINS: f64 = 0.1;

impl Cause {
    /// Whether it is time on a CPU instead of a wait.
    pub fn is_computing(&self) -> bool {
        self.label == COMPUTING_TEXT && self.class == "cpu"
    }

    /// Whether it is a wait for a CPU.
    pub fn waits_for_cpu(&self) -> bool {
        self.label == FOR_CPU && self.class == "cpu"
    }
}

impl Causes {
    /// The causes that explain slow requests, in the order of the list.
    pub fn explaining(&self) -> impl Iterator<Item = &Cause> {
        let least = EXPLAINS * self.slow.mean_ns.max(1.0);
        self.causes
            .iter()
            .filter(move |cause| cause.excess_ns >= least)
    }

    /// What these causes explain together, as a sentence.
    pub fn explained_words(&self) -> String {
        match self.explaining().next() {
            None => "None of them explains a tenth or more of the time of slow requests.".to_string(),
            Some(_) => format!(
                "Those that explain a tenth or more explain {:.0} % of the time of slow requests together.",
                100.0 * self.explained
            ),
        }
    }

    /// The cause that explains most.
    pub fn most_excess(&self) -> Option<&Cause> {
        self.explaining()
            .max_by(|a, b| a.excess_ns.total_cmp(&b.excess_ns))
    }

    /// What blocks an event loop most of the time, in slow and ordinary requests alike. It delays everything that
    /// the loop serves, so no excess shows it. Other threads do not count: a thread that serves one request at a
    /// time delays only that request, and waits of helper threads may be harmless.
    pub fn of_all(&self) -> Option<&Cause> {
        let held_up = ["disk", "lock", "memory"];
        self.causes
            .iter()
            .filter(|cause| cause.is_loop && held_up.contains(&cause.class.as_str()))
            .filter(|cause| cause.slow_ns >= 0.5 * self.slow.mean_ns)
            .filter(|cause| cause.ordinary_ns >= 0.5 * self.ordinary.mean_ns)
            .max_by(|a, b| a.slow_ns.total_cmp(&b.slow_ns))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Kind {
    comm: Name,
    call: Name,
    /// `NONE`: the thread waits for a CPU. `COMPUTING`: it is on one.
    label: Name,
    class: Name,
}

#[derive(Debug, Default)]
struct Waits {
    by_thread: FxHashMap<u32, Vec<(i64, i64)>>,
    resources: FxHashMap<Name, u64>,
    owners: FxHashMap<(Name, Name), u64>,
}

/// Disjoint intervals in order, with the cumulated length before each.
#[derive(Debug, Default)]
struct Timeline {
    intervals: Vec<(i64, i64)>,
    before: Vec<u64>,
}

impl Timeline {
    fn new(mut intervals: Vec<(i64, i64)>) -> Timeline {
        intervals.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
        for (begin, end) in intervals {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        let mut before = Vec::with_capacity(merged.len());
        let mut sum = 0u64;
        for (begin, end) in &merged {
            before.push(sum);
            sum = sum.saturating_add(end.abs_diff(*begin));
        }
        Timeline {
            intervals: merged,
            before,
        }
    }

    /// The total length of the intervals before a time.
    fn until(&self, at: i64) -> u64 {
        let place = self.intervals.partition_point(|interval| interval.0 < at);
        match place.checked_sub(1) {
            None => 0,
            Some(last) => {
                let (begin, end) = self.intervals[last];
                self.before[last].saturating_add(at.min(end).abs_diff(begin))
            }
        }
    }

    fn overlap(&self, span: Span) -> u64 {
        self.until(span.end).saturating_sub(self.until(span.begin))
    }
}

#[derive(Debug)]
pub struct CauseCollector {
    percent: f64,
    slow: Vec<Span>,
    ordinary: Vec<Span>,
    anytime: Vec<Span>,
    slow_requests: Requests,
    ordinary_requests: Requests,
    outside: u64,
    in_slow: Timeline,
    in_any: Timeline,
    kinds: FxHashMap<Kind, Waits>,
    /// Threads that are event loops.
    loops: FxHashSet<u32>,
    /// The end and the ordinal of each thread's last row.
    last: FxHashMap<u32, (i64, u64)>,
    sleeps: usize,
    sleeps_left_out: u64,
}

fn spans(requests: &[Request], started: i64) -> Vec<Span> {
    let every = requests.len().div_ceil(REQUESTS_MAX).max(1);
    let span = |request: &Request| Span {
        begin: started.saturating_add(request.sent_ns),
        end: started.saturating_add(request.end_ns()),
    };
    requests.iter().step_by(every).map(span).collect()
}

/// Intervals with the lengths of `spans`, at random times within `common`.
fn anytime(spans: &[Span], common: Span) -> Vec<Span> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let rounds = ANYTIME_MIN.div_ceil(spans.len().max(1));
    let mut found = Vec::with_capacity(rounds * spans.len());
    for span in spans.iter().cycle().take(rounds * spans.len()) {
        let room = common.length().saturating_sub(span.length());
        let begin = common
            .begin
            .saturating_add(random.random_range(0..=room) as i64);
        found.push(Span {
            begin,
            end: begin.saturating_add(span.length() as i64),
        });
    }
    found
}

fn summary(requests: &[Request]) -> Requests {
    let n = requests.len().max(1) as f64;
    let inside = |request: &Request| request.end_ns().saturating_sub(request.sent_ns) as f64;
    let unsent = |request: &Request| request.sent_ns.saturating_sub(request.begin_ns) as f64;
    Requests {
        requests: requests.len() as u64,
        shortest_ns: requests
            .iter()
            .map(|request| request.latency)
            .min()
            .unwrap_or(0),
        mean_ns: requests.iter().map(inside).sum::<f64>() / n,
        unsent_ns: requests.iter().map(unsent).sum::<f64>() / n,
        blocked_ns: 0.0,
    }
}

impl CauseCollector {
    /// `None` if no slow request is within the recorded time.
    pub fn new(run: &Run, started: i64, common: Span, percent: f64) -> Option<CauseCollector> {
        let mut scored: Vec<Request> = run
            .requests
            .iter()
            .filter(|request| !request.is_warm_up)
            .copied()
            .collect();
        scored.sort_by_key(|request| request.latency);
        let n = scored.len();
        let first = (kit_stats::rank(n, percent) + 1).min(n.saturating_sub(1));
        let recorded = |request: &Request| {
            let begin = started.saturating_add(request.sent_ns);
            let end = started.saturating_add(request.end_ns());
            begin >= common.begin && end <= common.end
        };
        let slow: Vec<Request> = scored[first..]
            .iter()
            .filter(|r| recorded(r))
            .copied()
            .collect();
        let outside = (n - first - slow.len()) as u64;
        let middle = &scored[n / 4..(3 * n / 4).max(n / 4 + 1).min(n)];
        let mut ordinary: Vec<Request> = middle.iter().filter(|r| recorded(r)).copied().collect();
        ordinary.sort_by_key(|request| request.begin_ns);
        if slow.is_empty() {
            return None;
        }
        let (slow_spans, ordinary_spans) = (spans(&slow, started), spans(&ordinary, started));
        let pairs = |spans: &[Span]| {
            spans
                .iter()
                .map(|span| (span.begin, span.end))
                .collect::<Vec<_>>()
        };
        let mut any = pairs(&slow_spans);
        any.extend(pairs(&ordinary_spans));
        let anytime = anytime(&slow_spans, common);
        any.extend(pairs(&anytime));
        Some(CauseCollector {
            percent,
            slow_requests: summary(&slow),
            ordinary_requests: summary(&ordinary),
            in_slow: Timeline::new(pairs(&slow_spans)),
            in_any: Timeline::new(any),
            slow: slow_spans,
            ordinary: ordinary_spans,
            anytime,
            outside,
            kinds: FxHashMap::default(),
            loops: FxHashSet::default(),
            last: FxHashMap::default(),
            sleeps: 0,
            sleeps_left_out: 0,
        })
    }

    pub fn add(&mut self, row: &Row, sleeps: &[Sleep]) {
        if row.is_loop {
            self.loops.insert(row.tid);
        }
        self.compute(row, sleeps);
        for sleep in sleeps {
            let woken = sleep.begin.saturating_add(sleep.blocked);
            let kind = Kind {
                comm: row.comm,
                call: row.call,
                label: sleep.label,
                class: sleep.class,
            };
            if !sleep.is_idle || sleep.is_timer {
                self.wait(kind, row.tid, (sleep.begin, woken), Some(sleep));
            }
            if sleep.runqueue > 0 {
                let kind = Kind {
                    label: NONE,
                    class: NONE,
                    ..kind
                };
                self.wait(
                    kind,
                    row.tid,
                    (woken, woken.saturating_add(sleep.runqueue)),
                    None,
                );
            }
        }
    }

    /// Between two consecutive rows of a thread there is only time on a CPU. Within a row, it is the time that is
    /// neither sleep nor a wait for a CPU. When in the row the thread was preempted is unknown; the end is assumed.
    fn compute(&mut self, row: &Row, sleeps: &[Sleep]) {
        let computing = Kind {
            comm: row.comm,
            call: if row.is_user { NONE } else { row.call },
            label: COMPUTING,
            class: NONE,
        };
        let last = self.last.insert(row.tid, (row.end, row.ordinal));
        // If a row is missing, what happened in between is unknown.
        if let Some((end, _)) = last.filter(|last| row.ordinal.wrapping_sub(last.1) <= 1) {
            let between = Kind {
                call: NONE,
                ..computing
            };
            self.wait(between, row.tid, (end, row.begin), None);
        }
        if row.sleeps_left_out > 0 {
            return;
        }
        let mut left = row.cpu;
        let mut at = row.begin;
        let ends = sleeps.iter().map(|sleep| {
            let over = sleep.begin.saturating_add(sleep.blocked);
            (sleep.begin, over.saturating_add(sleep.runqueue))
        });
        for (end, next) in ends.chain([(row.end, row.end)]) {
            let length = end.saturating_sub(at).clamp(0, left.max(0));
            if length > 0 {
                self.wait(computing, row.tid, (at, at + length), None);
            }
            left -= length;
            at = at.max(next);
        }
    }

    fn wait(&mut self, kind: Kind, tid: u32, interval: (i64, i64), sleep: Option<&Sleep>) {
        let span = Span {
            begin: interval.0,
            end: interval.1,
        };
        if self.in_any.overlap(span) == 0 {
            return;
        }
        if self.sleeps >= SLEEPS_MAX {
            self.sleeps_left_out += 1;
            return;
        }
        self.sleeps += 1;
        let waits = self.kinds.entry(kind).or_default();
        waits.by_thread.entry(tid).or_default().push(interval);
        let Some(sleep) = sleep else { return };
        let overlap = self.in_slow.overlap(span);
        if sleep.resource != NONE
            && (waits.resources.len() < THINGS_MAX || waits.resources.contains_key(&sleep.resource))
        {
            *waits.resources.entry(sleep.resource).or_default() += overlap;
        }
        let owner = (sleep.owner, sleep.doing);
        if sleep.owner != NONE
            && (waits.owners.len() < THINGS_MAX || waits.owners.contains_key(&owner))
        {
            *waits.owners.entry(owner).or_default() += overlap;
        }
    }

    pub fn finish(mut self, names: &Names) -> Causes {
        let n = (
            self.slow.len().max(1) as f64,
            self.ordinary.len().max(1) as f64,
        );
        let is_timer = |kind: &Kind| names.text(kind.class) == "idle";
        let blocked = self.kinds.iter();
        let is_blocked = |kind: &Kind| ![NONE, COMPUTING].contains(&kind.label) && !is_timer(kind);
        let blocked = blocked.filter(|(kind, _)| is_blocked(kind));
        let blocked = blocked.flat_map(|(_, waits)| waits.by_thread.values().flatten().copied());
        let any = Timeline::new(blocked.collect());
        let within = |spans: &[Span], n: f64| {
            spans
                .iter()
                .map(|span| any.overlap(*span) as f64)
                .sum::<f64>()
                / n
        };
        self.slow_requests.blocked_ns = within(&self.slow, n.0);
        self.ordinary_requests.blocked_ns = within(&self.ordinary, n.1);
        let mean_ns = self.slow_requests.mean_ns.max(1.0);
        let mut causes: Vec<(Kind, Cause)> = Vec::new();
        // Intervals of the explaining causes, of all threads.
        let mut explaining: Vec<(i64, i64)> = Vec::new();
        for (kind, waits) in std::mem::take(&mut self.kinds) {
            let threads = waits.by_thread.len() as u64;
            let is_loop = waits.by_thread.keys().any(|tid| self.loops.contains(tid));
            let timelines: Vec<Timeline> =
                waits.by_thread.into_values().map(Timeline::new).collect();
            let longest = |span: &Span| {
                timelines
                    .iter()
                    .map(|timeline| timeline.overlap(*span))
                    .max()
                    .unwrap_or(0)
            };
            let of_slow: Vec<u64> = self.slow.iter().map(longest).collect();
            let slow_ns = of_slow.iter().map(|ns| *ns as f64).sum::<f64>() / n.0;
            let ordinary_ns = self
                .ordinary
                .iter()
                .map(|span| longest(span) as f64)
                .sum::<f64>()
                / n.1;
            let anytime_ns = self
                .anytime
                .iter()
                .map(|span| longest(span) as f64)
                .sum::<f64>()
                / self.anytime.len().max(1) as f64;
            let requests = of_slow.iter().filter(|ns| **ns > 0).count() as u64;
            if requests == 0 {
                continue;
            }
            let most = |things: &FxHashMap<Name, u64>| {
                let most = things
                    .iter()
                    .max_by_key(|(name, ns)| (**ns, std::cmp::Reverse(**name)));
                most.map(|(name, _)| names.text(*name).to_string())
            };
            let owner = waits
                .owners
                .iter()
                .max_by_key(|(owner, ns)| (**ns, std::cmp::Reverse(**owner)));
            let text = |name: Name, other: &str| match name {
                NONE => other.to_string(),
                name => names.text(name).to_string(),
            };
            let cause = Cause {
                comm: text(kind.comm, ""),
                call: text(kind.call, BETWEEN_CALLS),
                label: match kind.label {
                    COMPUTING => COMPUTING_TEXT.to_string(),
                    label => text(label, FOR_CPU),
                },
                class: text(kind.class, "cpu"),
                threads,
                requests,
                part: requests as f64 / n.0,
                slow_ns,
                ordinary_ns,
                anytime_ns,
                excess_ns: slow_ns - anytime_ns,
                explains: ((slow_ns - anytime_ns) / mean_ns).clamp(0.0, 1.0),
                longest_ns: of_slow.iter().copied().max().unwrap_or(0),
                is_loop,
                resource: most(&waits.resources),
                owner: owner.map(|((comm, doing), _)| match *doing {
                    NONE => names.text(*comm).to_string(),
                    doing => format!("{}, {}", names.text(*comm), names.text(doing)),
                }),
            };
            // Threads that sleep for a time that they chose themselves are no cause, unless that explains slow
            // requests. The same applies to threads that compute.
            let explains = cause.excess_ns >= EXPLAINS * mean_ns;
            if explains {
                let intervals = timelines.iter().flat_map(|timeline| &timeline.intervals);
                explaining.extend(intervals);
            }
            if explains || !(is_timer(&kind) || kind.label == COMPUTING) {
                causes.push((kind, cause));
            }
        }
        causes.sort_by(|(a_kind, a), (b_kind, b)| {
            b.excess_ns.total_cmp(&a.excess_ns).then(a_kind.cmp(b_kind))
        });
        let explaining = Timeline::new(explaining);
        let of_all = |spans: &[Span]| {
            let sum: f64 = spans
                .iter()
                .map(|span| explaining.overlap(*span) as f64)
                .sum();
            sum / spans.len().max(1) as f64
        };
        let explained = (of_all(&self.slow) - of_all(&self.anytime)) / mean_ns;
        let left_out = causes.len().saturating_sub(CAUSES_MAX) as u64;
        causes.truncate(CAUSES_MAX);
        Causes {
            percent: self.percent,
            slow: self.slow_requests,
            ordinary: self.ordinary_requests,
            looked_at: self.slow.len() as u64,
            outside: self.outside,
            causes: causes.into_iter().map(|(_, cause)| cause).collect(),
            explained: explained.clamp(0.0, 1.0),
            left_out,
            sleeps_left_out: self.sleeps_left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn overlaps_are_those_of_single_nanoseconds(
            intervals in prop::collection::vec((0i64..60, 0i64..12), 0..20), begin in 0i64..60, length in 0i64..30,
        ) {
            let intervals: Vec<_> = intervals.iter().map(|(at, length)| (*at, at + length)).collect();
            let covered = |ns: &i64| intervals.iter().any(|(from, to)| (*from..*to).contains(ns));
            let span = Span { begin, end: begin + length };
            let by_hand = (begin..begin + length).filter(covered).count() as u64;
            prop_assert_eq!(Timeline::new(intervals.clone()).overlap(span), by_hand);
        }
    }
}
