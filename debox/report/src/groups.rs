// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time by process, and by unit or container.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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
    processes: &[Process],
    names: &Names,
) -> (Groups, Groups) {
    let known: FxHashMap<u32, &Process> = processes.iter().map(|one| (one.pid, one)).collect();
    let by_process = by_process(sums, rests, names);
    let mut by_place: BTreeMap<String, Sums> = BTreeMap::new();
    let mut rows = Vec::new();
    for (pid, (comm, of_process)) in by_process {
        let process = known.get(&pid);
        let place = process.and_then(|process| process.place.clone());
        let of_place = place.clone().unwrap_or_else(|| UNKNOWN_PLACE.to_string());
        by_place.entry(of_place).or_default().add(&of_process);
        let command = process.map(|process| process.name());
        let name = command.filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| names.get(comm).to_string());
        let group = Group {
            pid: Some(pid),
            inner_pid: process.and_then(|process| process.inner_pid),
            place,
            ..of_process.group(name, sums, names)
        };
        rows.push((of_process.active(), group));
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

/// Each process's sums, with the name of its first thread.
fn by_process(sums: &Aggregate, rests: &Rests, names: &Names) -> BTreeMap<u32, (Name, Sums)> {
    let mut by_process: BTreeMap<u32, (Name, Sums)> = BTreeMap::new();
    for (tid, thread) in &sums.threads.sums {
        let (comm, of_process) = by_process
            .entry(thread.pid)
            .or_insert_with(|| (thread.comm, Sums::default()));
        if *tid == thread.pid {
            *comm = thread.comm;
        }
        of_process.processes = 1;
        of_process.threads += 1;
        of_process.calls += thread.calls;
        of_process.parts.add(&thread.parts);
        of_process.idle = of_process.idle.saturating_add(thread.idle);
    }
    for ((pid, label), ns) in &sums.process_labels {
        if let Some((_, of_process)) = by_process.get_mut(pid) {
            of_process.labels.insert(*label, *ns);
        }
    }
    let futex = names.of(FUTEX);
    for (key, wait) in &sums.waits {
        let Some((pid, _)) = key.thread.filter(|_| rest::is_rest(rests, key)) else {
            continue;
        };
        if let Some((_, of_process)) = by_process.get_mut(&pid) {
            of_process.resting = of_process.resting.saturating_add(wait.blocked);
            if let Some(ns) = of_process.labels.get_mut(&futex) {
                *ns = ns.saturating_sub(wait.blocked);
            }
        }
    }
    by_process
}
