//! Burstiness: the number of events that a server gets at once (Figure 3.1), and the number of its
//! threads that are runnable at once (Figure 3.2).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::rows::{Name, Names, Row, Sleep};
use super::Span;

/// Threads that are listed individually, at most.
const THREADS_MAX: usize = 32;
/// Changes of the number of runnable threads that are kept, at most.
const CHANGES_MAX: usize = 1 << 26;
/// Bars of the histogram, approximately.
const BARS: usize = 100;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Burstiness {
    /// Over all threads; null if no thread waits for events.
    pub ready: Option<Ready>,
    /// Per thread, those with the most calls first.
    pub threads: Vec<Ready>,
    pub runnable: Option<Runnable>,
    /// Why the number of runnable threads is unknown.
    pub no_runnable: Option<String>,
}

/// Number of events per return of `epoll_wait`, `select` and similar calls that returned any.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ready {
    pub comm: String,
    pub tid: Option<u32>,
    /// Calls that returned events.
    pub calls: u64,
    /// Calls that returned no events because of their time limit.
    pub empty: u64,
    pub errors: u64,
    pub mean: f64,
    pub median: u64,
    pub p95: u64,
    pub max: u64,
    /// Part of the calls that returned more than 100 events, which the paper reports.
    pub over_100: f64,
    /// `[events, part of the calls that returned no more]`
    pub cdf: Vec<(u64, f64)>,
}

/// How much of the time each number of threads was runnable: on a CPU, or waiting for one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Runnable {
    /// Threads in the history.
    pub threads: u64,
    pub seconds: f64,
    pub mean: f64,
    /// Part of the time with no runnable thread, and with more than 80 % of the threads runnable.
    pub none: f64,
    pub over_80_percent: f64,
    /// `[fewest, most, part of the time]`, for ranges of numbers of threads.
    pub histogram: Vec<(u64, u64, f64)>,
}

#[derive(Debug, Default)]
struct Counts {
    comm: Name,
    events: BTreeMap<u64, u64>,
    empty: u64,
    errors: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        for (events, calls) in &other.events {
            *self.events.entry(*events).or_default() += calls;
        }
        self.empty += other.empty;
        self.errors += other.errors;
    }

    fn calls(&self) -> u64 {
        self.events.values().sum()
    }

    fn ready(&self, comm: String, tid: Option<u32>) -> Ready {
        let calls = self.calls();
        let part = |n: u64| n as f64 / calls.max(1) as f64;
        let mut cdf = Vec::new();
        let mut so_far = 0;
        for (events, calls) in &self.events {
            so_far += calls;
            cdf.push((*events, part(so_far)));
        }
        let quantile = |wanted: f64| {
            let found = cdf.iter().find(|(_, part)| *part >= wanted - 1e-12);
            found.map_or(0, |(events, _)| *events)
        };
        let sum: f64 = self
            .events
            .iter()
            .map(|(events, calls)| *events as f64 * *calls as f64)
            .sum();
        Ready {
            comm,
            tid,
            calls,
            empty: self.empty,
            errors: self.errors,
            mean: sum / calls.max(1) as f64,
            median: quantile(0.5),
            p95: quantile(0.95),
            max: self.events.keys().next_back().copied().unwrap_or(0),
            over_100: part(self.events.range(101..).map(|(_, calls)| calls).sum()),
            cdf,
        }
    }
}

/// A thread's lifetime, as far as it was seen.
#[derive(Debug)]
struct Life {
    first: i64,
    last: i64,
}

#[derive(Debug)]
pub struct BurstCollector {
    span: Span,
    threads: FxHashMap<u32, Counts>,
    lives: FxHashMap<u32, Life>,
    /// Times at which the number of runnable threads changed by one.
    changes: Vec<(i64, i32)>,
    too_many: bool,
    left_out: u64,
}

impl BurstCollector {
    pub fn new(span: Span) -> BurstCollector {
        BurstCollector {
            span,
            threads: FxHashMap::default(),
            lives: FxHashMap::default(),
            changes: Vec::new(),
            too_many: false,
            left_out: 0,
        }
    }

    pub fn add(&mut self, row: &Row, sleeps: &[Sleep]) {
        let life = self.lives.entry(row.tid).or_insert(Life {
            first: row.begin,
            last: row.end,
        });
        life.first = life.first.min(row.begin);
        life.last = life.last.max(row.end);
        self.left_out += u64::from(row.sleeps_left_out);
        for sleep in sleeps {
            self.asleep(sleep.begin, sleep.begin.saturating_add(sleep.blocked));
        }
        let is_in = (self.span.begin..=self.span.end).contains(&row.end);
        if row.waits_for_events && is_in && !row.restarted {
            let counts = self.threads.entry(row.tid).or_default();
            counts.comm = row.comm;
            match u64::try_from(row.ret) {
                Ok(0) => counts.empty += 1,
                Ok(events) => *counts.events.entry(events).or_default() += 1,
                Err(_) => counts.errors += 1,
            }
        }
    }

    fn asleep(&mut self, begin: i64, end: i64) {
        let Some(common) = (Span { begin, end }).common(self.span) else {
            return;
        };
        if self.changes.len() >= CHANGES_MAX {
            self.too_many = true;
            return;
        }
        self.changes.push((common.begin, -1));
        self.changes.push((common.end, 1));
    }

    pub fn finish(mut self, names: &Names, is_whole: bool) -> Burstiness {
        let mut all = Counts::default();
        let mut threads: Vec<(&u32, &Counts)> = self.threads.iter().collect();
        for (_, counts) in &threads {
            all.add(counts);
        }
        threads.sort_by_key(|(tid, counts)| (std::cmp::Reverse(counts.calls()), **tid));
        threads.truncate(THREADS_MAX);
        let threads: Vec<Ready> = threads
            .into_iter()
            .map(|(tid, counts)| counts.ready(names.text(counts.comm).to_string(), Some(*tid)))
            .collect();
        let ready = (!threads.is_empty()).then(|| all.ready(String::new(), None));
        let why_not = if !is_whole {
            Some("the history has only some of the calls".to_string())
        } else if self.too_many {
            Some(format!("it has more than {CHANGES_MAX} sleeps"))
        } else if self.left_out > 0 {
            Some(format!("{} sleeps are not in the history", self.left_out))
        } else {
            None
        };
        let runnable = match why_not {
            Some(_) => None,
            None => self.runnable(),
        };
        Burstiness {
            ready,
            threads,
            runnable,
            no_runnable: why_not,
        }
    }

    /// A thread is runnable from its first record to its last, except while it is asleep. After its last
    /// record it is in a call that has not ended, or asleep, or has ended.
    fn runnable(&mut self) -> Option<Runnable> {
        let mut changes = std::mem::take(&mut self.changes);
        let mut seen = None::<Span>;
        let mut threads = 0;
        for life in self.lives.values() {
            let span = Span {
                begin: life.first,
                end: life.last,
            };
            let Some(common) = span.common(self.span) else {
                continue;
            };
            threads += 1;
            changes.push((common.begin, 1));
            changes.push((common.end, -1));
            let whole = seen.get_or_insert(common);
            whole.begin = whole.begin.min(common.begin);
            whole.end = whole.end.max(common.end);
        }
        let seen = seen?;
        changes.sort_unstable();
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut now, mut runnable) = (seen.begin, 0i64);
        for (at, change) in changes {
            let at = at.clamp(seen.begin, seen.end);
            *times.entry(runnable.max(0) as u64).or_default() += (at - now).max(0) as u64;
            now = at;
            runnable += i64::from(change);
        }
        let total = seen.length() as f64;
        let part = |ns: u64| ns as f64 / total;
        let width = (threads as usize).div_ceil(BARS).max(1) as u64;
        let mut bars: BTreeMap<u64, u64> = BTreeMap::new();
        for (runnable, ns) in &times {
            // Zero has its own bar.
            let bar = if *runnable == 0 {
                0
            } else {
                (runnable - 1) / width + 1
            };
            *bars.entry(bar).or_default() += ns;
        }
        let edges = |bar: u64| {
            if bar == 0 {
                (0, 0)
            } else {
                ((bar - 1) * width + 1, bar * width)
            }
        };
        let over = (threads as f64 * 0.8).floor() as u64 + 1;
        Some(Runnable {
            threads,
            seconds: total / 1e9,
            mean: times
                .iter()
                .map(|(n, ns)| *n as f64 * *ns as f64)
                .sum::<f64>()
                / total,
            none: part(times.get(&0).copied().unwrap_or(0)),
            over_80_percent: part(times.range(over..).map(|(_, ns)| ns).sum()),
            histogram: bars
                .into_iter()
                .filter(|(_, ns)| *ns > 0)
                .map(|(bar, ns)| (edges(bar).0, edges(bar).1.min(threads), part(ns)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::rows::NONE;

    fn row(tid: u32, begin: i64, end: i64, ret: i64) -> Row {
        Row {
            begin,
            end,
            tid,
            comm: NONE,
            is_user: false,
            ordinal: 0,
            cpu: 0,
            call: NONE,
            ret,
            restarted: false,
            sleeps_left_out: 0,
            waits_for_events: true,
            is_loop: true,
        }
    }

    fn asleep(begin: i64, blocked: i64) -> Sleep {
        Sleep {
            begin,
            blocked,
            runqueue: 0,
            label: NONE,
            class: NONE,
            is_idle: true,
            is_timer: false,
            resource: NONE,
            owner: NONE,
            doing: NONE,
        }
    }

    fn collector() -> BurstCollector {
        BurstCollector::new(Span {
            begin: 0,
            end: 1000,
        })
    }

    #[test]
    fn events_are_counted_by_call() {
        let mut burst = collector();
        for events in [1, 1, 2, 0, -4, 200] {
            burst.add(&row(1, 10, 20, events), &[]);
        }
        burst.add(&row(1, 10, 2000, 9), &[]);
        let found = burst.finish(&Names::default(), true);
        let ready = found.ready.expect("calls");
        assert_eq!((ready.calls, ready.empty, ready.errors), (4, 1, 1));
        assert_eq!((ready.median, ready.max), (1, 200));
        assert_eq!((ready.mean, ready.over_100), (51.0, 0.25));
        assert_eq!(ready.cdf, [(1, 0.5), (2, 0.75), (200, 1.0)]);
    }

    #[test]
    fn runnable_threads_are_weighted_by_time() {
        // Thread 1 exists from 0 to 1000 and sleeps from 100 to 900; thread 2 exists from 500, and
        // sleeps from 600 to 1000.
        let mut burst = collector();
        burst.add(&row(1, 0, 1000, 1), &[asleep(100, 800)]);
        burst.add(&row(2, 500, 1000, 1), &[asleep(600, 400)]);
        let runnable = burst
            .finish(&Names::default(), true)
            .runnable
            .expect("a history");
        assert_eq!(runnable.threads, 2);
        // No thread is runnable from 100 to 500 and from 600 to 900.
        assert!((runnable.none - 0.7).abs() < 1e-9);
        assert_eq!(runnable.histogram.len(), 2);
        assert!((runnable.mean - 0.3).abs() < 1e-9);
        assert_eq!(runnable.over_80_percent, 0.0);
    }

    #[test]
    fn a_part_of_the_calls_does_not_tell_who_was_runnable() {
        let mut burst = collector();
        burst.add(&row(1, 0, 1000, 1), &[]);
        let found = burst.finish(&Names::default(), false);
        assert!(found.runnable.is_none() && found.no_runnable.is_some());
    }
}
