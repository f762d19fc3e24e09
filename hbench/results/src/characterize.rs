// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes an application's vector from a recording of `debox record`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{ensure, Context, Result};
use debox_history::History;

use crate::application::{Application, Component, Recording, Tap, Wait, SCHEMA};
use crate::families::Families;
use crate::overlap::Overlap;
use crate::primitives::{kind, Kind};

/// A sandbox that answers calls at once waits for the next one for about so long.
const WORK_NS: u64 = 15_000;

/// `version`: of the program that makes it.
///
/// # Errors
///
/// It is no recording, is damaged, or lacks the sums that a recorder writes at its end.
pub fn application(paths: &[&Path], version: &str) -> Result<Application> {
    let history = History::open(paths)?;
    let first = history.files.first().context("no file was named")?;
    let named = || first.path.display();
    let meta = first.meta.clone();
    ensure!(
        meta.filter.is_none(),
        "{} has only some of the calls (--filter {}): record without it",
        named(),
        kit_console::printable(meta.filter.as_deref().unwrap_or(""))
    );
    let account = history.account().with_context(|| {
        format!(
            "{} has no sums: its recorder did not come to its end, or files of the recording are missing",
            named()
        )
    })?;
    let last = history.files.last().map_or(&meta, |file| &file.meta);
    let parents = last.processes.iter();
    let parents = parents.filter_map(|process| Some((process.pid, process.parent?)));
    let mut families = Families::new(parents);
    let mut overlap = Overlap::default();
    let mut components: BTreeMap<Kind, Component> = BTreeMap::new();
    let (mut calls, mut calls_after_work, mut faults_in_calls) = (0u64, 0u64, 0u64);
    // By thread, the end of its last call.
    let mut ends: HashMap<(u32, u32), u64> = HashMap::new();
    let mut of_recorder_ns = 0u64;
    for (at, row) in history.calls().enumerate() {
        let (_, call) = row?;
        // Until then the process of the command is a copy of the recorder, whose memory it gives up here.
        if at == 0 && !meta.command.is_empty() && &*call.name == "execve" {
            of_recorder_ns = call.budget.cpu_ns;
            continue;
        }
        overlap
            .add(&call)
            .with_context(|| format!("cannot use {}", named()))?;
        if call.number < 0 {
            continue;
        }
        let (kind, bytes) = kind(&call, &mut families);
        families.follow(&call);
        calls += 1;
        let end = call.start_ns.saturating_add(call.wall_ns);
        let before = ends.insert((call.pid, call.tid), end);
        let worked = |end| call.start_ns.saturating_sub(end) >= WORK_NS;
        calls_after_work += u64::from(before.is_some_and(worked));
        faults_in_calls += u64::from(call.faults_minor);
        let one = components.entry(kind).or_insert_with_key(|kind| Component {
            primitive: kind.primitive.clone(),
            size: kind.size,
            calls: 0,
            bytes: 0,
            cpu_ns: 0,
            sleeps: 0,
        });
        one.calls += 1;
        one.bytes = one.bytes.saturating_add(bytes);
        let cpu_ns = call
            .budget
            .cpu_ns
            .saturating_add(call.budget.irq_ns.unwrap_or(0));
        one.cpu_ns = one.cpu_ns.saturating_add(cpu_ns);
        one.sleeps += call.sleeps.len() as u64 + u64::from(call.sleeps_left_out);
    }
    let found = overlap.find();
    let totals = &account.totals;
    let lost = &last.lost;
    let waits = found.waits.iter().map(|(kind, (ns, count))| Wait {
        kind: kind.clone(),
        ns: *ns,
        count: *count,
    });
    let made = Application {
        schema: SCHEMA.to_string(),
        version: version.to_string(),
        command: meta.command.clone(),
        recording: Recording {
            kernel: meta.kernel.clone(),
            cpus: meta.cpus,
            // Without the time in which the recorder loads its probes.
            elapsed_ns: found.elapsed_ns(),
            processes: found.processes,
            threads: found.threads,
            calls,
            calls_after_work,
            user_cpu_ns: totals.user_cpu_ns,
            kernel_cpu_ns: totals.kernel_cpu_ns.saturating_sub(of_recorder_ns),
            faults_in_calls,
            overlap: found.overlap(),
            lost: lost
                .records
                .saturating_add(lost.sleeps)
                .saturating_add(lost.threads)
                .saturating_add(lost.unwritten),
        },
        components: components.into_values().collect(),
        waits: waits.collect(),
        runs: Vec::new(),
        tap: None,
        machine: None,
    };
    made.check()
        .with_context(|| format!("cannot use {}: it is damaged", named()))?;
    Ok(made)
}

/// What recording adds to a call, from a recording of a program that makes only calls of `getppid` for most of its
/// time. The medians: some calls are interrupted.
///
/// # Errors
///
/// The recording cannot be read, or has too few such calls.
pub fn tap(path: &Path) -> Result<Tap> {
    const CALLS_MIN: usize = 100;
    let history = History::open(&[path])?;
    let (mut inside, mut between) = (Vec::new(), Vec::new());
    let mut before: Option<u64> = None;
    for row in history.calls() {
        let (_, call) = row?;
        let end = call.start_ns.saturating_add(call.wall_ns);
        if &*call.name != "getppid" {
            before = None;
            continue;
        }
        inside.push(call.budget.cpu_ns as f64);
        between.extend(before.map(|before| call.start_ns.saturating_sub(before) as f64));
        before = Some(end);
    }
    ensure!(
        between.len() >= CALLS_MIN,
        "{} has too few calls of getppid to tell what recording adds to one",
        path.display()
    );
    let middle = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        kit_stats::median(&values).unwrap_or(0.0)
    };
    Ok(Tap {
        inside_ns: middle(inside),
        between_ns: middle(between),
    })
}
