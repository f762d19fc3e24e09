// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time by process, and by unit or container.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use debox_history::{History, ProcessNames};
use debox_model::report::Process;
use rustc_hash::FxHashMap;

use crate::aggregate::Aggregate;
use crate::names::{Name, Names};
use crate::parts::{budget, Parts};
use crate::report::{Cause, Group, Groups};
use crate::rest::{self, Rests, FUTEX};

/// Rows of each table, at most.
const ROWS: usize = 60;

/// Causes of waiting that a row names, at most.
const CAUSES: usize = 3;

/// The place of processes of which the recording does not say where they belonged.
const UNKNOWN_PLACE: &str = "(not known)";

/// Which program a process ran at a time.
pub struct Programs {
    names: ProcessNames,
    /// The recordings, in the order of their beginnings.
    recordings: Vec<Recorded>,
}

/// Where and when a recording was made.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Recorded {
    begin_ns: i64,
    offset_ns: i64,
    host: String,
}

impl Programs {
    pub fn of(history: &History) -> Programs {
        let metas = history.files.iter().map(|file| &file.meta);
        let mut recordings: Vec<Recorded> = metas
            .map(|meta| Recorded {
                begin_ns: meta
                    .realtime_offset_ns
                    .saturating_add_unsigned(meta.started_ns),
                offset_ns: meta.realtime_offset_ns,
                host: meta.host.clone(),
            })
            .collect();
        recordings.sort_unstable();
        recordings.dedup();
        Programs {
            names: ProcessNames::of(history),
            recordings,
        }
    }

    /// `at_ns`: since 1970. A row does not say which recording it is from: of those that know the process, the last one
    /// that had begun by then counts.
    fn at(&self, pid: u32, at_ns: i64) -> Option<&Process> {
        let begun = |recorded: &&Recorded| recorded.begin_ns <= at_ns;
        let latest_first = || self.recordings.iter().rev();
        let mut recordings = latest_first().filter(begun).chain(latest_first());
        recordings.find_map(|recorded| {
            let at_ns = at_ns.saturating_sub(recorded.offset_ns).max(0) as u64;
            self.names.program_at(&recorded.host, pid, at_ns)
        })
    }

    /// The last program of each process, in the order in which they began.
    pub fn last(&self) -> Vec<Process> {
        let mut processes: Vec<_> = self
            .names
            .last()
            .map(|(_, process)| process.clone())
            .collect();
        processes.sort_by_key(|process| (process.from_ns, process.pid));
        processes
    }
}

/// The sums of a process.
struct OfProcess {
    /// The name of its first thread.
    comm: Name,
    /// When its last row began.
    last: i64,
    sums: Sums,
}

/// The sums of a group.
#[derive(Default)]
struct Sums {
    processes: u64,
    threads: u64,
    calls: u64,
    parts: Parts,
    idle: u64,
    resting: u64,
    labels: FxHashMap<Name, u64>,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.processes += other.processes;
        self.threads += other.threads;
        self.calls += other.calls;
        self.parts.add(&other.parts);
        self.idle = self.idle.saturating_add(other.idle);
        self.resting = self.resting.saturating_add(other.resting);
        for (label, ns) in &other.labels {
            let sum = self.labels.entry(*label).or_default();
            *sum = sum.saturating_add(*ns);
        }
    }

    fn active(&self) -> u64 {
        let aside = self.idle.saturating_add(self.resting);
        self.parts.wall.saturating_sub(aside)
    }

    fn group(&self, name: String, sums: &Aggregate, names: &Names) -> Group {
        let mut causes: Vec<Cause> = self
            .labels
            .iter()
            .map(|(label, ns)| Cause {
                label: names.get(*label).to_string(),
                class: sums.class_of(*label, names),
                blocked_ns: *ns,
            })
            .filter(|cause| cause.class != "idle" && cause.blocked_ns > 0)
            .collect();
        causes.sort_by_key(|cause| (Reverse(cause.blocked_ns), cause.label.clone()));
        causes.truncate(CAUSES);
        Group {
            pid: None,
            inner_pid: None,
            name,
            place: None,
            processes: self.processes,
            threads: self.threads,
            calls: self.calls,
            budget: budget(&self.parts, self.idle, sums.has_irq),
            resting_ns: self.resting,
            causes,
        }
    }
}

/// The tables by process, and by unit or container.
pub fn groups(
    sums: &Aggregate,
    rests: &Rests,
    programs: &Programs,
    names: &Names,
) -> (Groups, Groups) {
    let by_process = by_process(sums, rests, names);
    let mut by_place: BTreeMap<String, Sums> = BTreeMap::new();
    let mut rows = Vec::new();
    for (pid, of_process) in by_process {
        // A later process may have the same number.
        let process = programs.at(pid, of_process.last);
        let place = process.and_then(|process| process.place.clone());
        let of_place = place.clone().unwrap_or_else(|| UNKNOWN_PLACE.to_string());
        by_place.entry(of_place).or_default().add(&of_process.sums);
        let command = process.map(|process| process.name());
        let name = command.filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| names.get(of_process.comm).to_string());
        let group = Group {
            pid: Some(pid),
            inner_pid: process.and_then(|process| process.inner_pid),
            place,
            ..of_process.sums.group(name, sums, names)
        };
        rows.push((of_process.sums.active(), group));
    }
    let places = by_place.into_iter();
    let places = places.map(|(name, place)| (place.active(), place.group(name, sums, names)));
    (longest(rows), longest(places.collect()))
}

fn longest(mut rows: Vec<(u64, Group)>) -> Groups {
    rows.sort_by(|(one_ns, one), (other_ns, other)| {
        (Reverse(one_ns), one.pid, &one.name).cmp(&(Reverse(other_ns), other.pid, &other.name))
    });
    let left_out = rows.len().saturating_sub(ROWS) as u64;
    let rows = rows.into_iter().take(ROWS).map(|(_, group)| group);
    Groups {
        rows: rows.collect(),
        left_out,
    }
}

fn by_process(sums: &Aggregate, rests: &Rests, names: &Names) -> BTreeMap<u32, OfProcess> {
    let mut by_process: BTreeMap<u32, OfProcess> = BTreeMap::new();
    for (tid, thread) in &sums.threads.sums {
        let found = by_process.entry(thread.pid).or_insert_with(|| OfProcess {
            comm: thread.comm,
            last: thread.last,
            sums: Sums::default(),
        });
        if *tid == thread.pid {
            found.comm = thread.comm;
        }
        found.last = found.last.max(thread.last);
        let of_process = &mut found.sums;
        of_process.processes = 1;
        of_process.threads += 1;
        of_process.calls += thread.calls;
        of_process.parts.add(&thread.parts);
        of_process.idle = of_process.idle.saturating_add(thread.idle);
    }
    for ((pid, label), ns) in &sums.process_labels {
        if let Some(of_process) = by_process.get_mut(pid) {
            of_process.sums.labels.insert(*label, *ns);
        }
    }
    let futex = names.of(FUTEX);
    for (key, wait) in &sums.waits {
        let Some((pid, _)) = key.thread.filter(|_| rest::is_rest(rests, key)) else {
            continue;
        };
        if let Some(OfProcess {
            sums: of_process, ..
        }) = by_process.get_mut(&pid)
        {
            of_process.resting = of_process.resting.saturating_add(wait.blocked);
            if let Some(ns) = of_process.labels.get_mut(&futex) {
                *ns = ns.saturating_sub(wait.blocked);
            }
        }
    }
    by_process
}
