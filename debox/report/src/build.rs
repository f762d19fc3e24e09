//! Makes the report from the sums.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anyhow::Result;
use debox_history::History;
use debox_model::report::{Deadlock, Headline, Process};
use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregate, CallSums, LabelSums};
use crate::caveats;
use crate::event_loops;
use crate::findings;
use crate::flame_graph::Flame;
use crate::groups::{self, Programs};
use crate::headline;
use crate::names::{Name, Names};
use crate::parts::{budget, Parts, USER};
use crate::report::*;
use crate::rest::{self, Rests};
use crate::resting::Resting;
use crate::segments::{Point, Series};
use crate::slow_calls::{at_places, slowest};
use crate::trend;
use crate::user_level_calls::user_level;
use crate::waits;

/// Rows of each part of the report, at most: a page has to stay small.
const THREADS: usize = 40;
const MATRIX_LABELS: usize = 24;
const MATRIX_CALLS: usize = 30;
const CDFS: usize = 16;
const CDF_POINTS: usize = 160;
const TRENDS: usize = 10;
const TREND_POINTS: usize = 300;

pub fn report(
    history: &History,
    sums: &Aggregate,
    series: &FxHashMap<Name, Series>,
    names: &Names,
) -> Result<Report> {
    let mut calls: Vec<(String, Name, &CallSums)> = sums
        .calls
        .iter()
        .filter(|(_, sums)| sums.count + sums.in_flight > 0)
        .map(|(name, sums)| (names.get(*name).to_string(), *name, sums))
        .collect();
    // Sorted by cost: wall time without idle waits.
    calls.sort_by(|(a_name, _, a), (b_name, _, b)| {
        let cost = |sums: &CallSums| sums.parts.wall.saturating_sub(sums.idle);
        (Reverse(cost(a)), a_name).cmp(&(Reverse(cost(b)), b_name))
    });
    let has_irq = sums.has_irq;
    let mut totals = (Parts::default(), 0u64);
    for (_, _, sums) in calls.iter().filter(|(name, _, _)| name != USER) {
        totals.0.add(&sums.parts);
        totals.1 = totals.1.saturating_add(sums.idle);
    }
    let mut listed = Vec::new();
    let mut between_calls = None;
    for (name, _, sums) in &calls {
        let points = if listed.len() < CDFS { CDF_POINTS } else { 0 };
        if name == USER {
            between_calls = Some(call(name, sums, has_irq, 0, names));
        } else {
            listed.push(call(name, sums, has_irq, points, names));
        }
    }
    let begin = if sums.rows > 0 { sums.first } else { 0 };
    let rests = rest::judge(sums);
    let programs = Programs::of(history);
    let recording = recording(history, sums, begin, &listed, programs.last());
    let (by_process, by_unit) = groups::groups(sums, &rests, &programs, names);
    let (waits, waits_left_out) = waits::waits(sums, &rests, begin, names);
    let asked_for = history.files.iter().any(|file| file.meta.user_level);
    let mut report = Report {
        schema: SCHEMA,
        recording,
        headline: None,
        headline_is_of_run: false,
        headline_text: Vec::new(),
        active: None,
        active_text: Vec::new(),
        loop_text: None,
        account: None,
        samples: None,
        spins: None,
        spins_left_out: 0,
        spins_left_out_ns: 0,
        deadlocks: deadlocks(history),
        findings: Vec::new(),
        caveats: Vec::new(),
        totals: budget(&totals.0, totals.1, has_irq),
        timeline: Timeline::default(),
        matrix: matrix(sums, names),
        waits,
        waits_left_out,
        cpu_waits: sums.cpu_waits.report(names),
        flame: Flame::default(),
        trends: trends(&calls, series),
        user_level: user_level(sums, &calls, asked_for, begin, names),
        slowest: slowest(history, &calls, begin, has_irq)?,
        in_flight: at_places(history, &sums.open, begin, has_irq)?,
        in_flight_left_out: sums.in_flight.saturating_sub(sums.open.len() as u64),
        loops: event_loops::loops(sums, begin, names),
        by_process,
        by_unit,
        threads: threads(sums, &rests, names),
        threads_left_out: (sums.threads.sums.len().saturating_sub(THREADS)) as u64,
        calls: listed,
        between_calls,
        against: None,
    };
    let resting = Resting::of(&rests, sums);
    resting.add_to(&mut report, sums, &calls, names);
    report
        .slowest
        .retain(|call| !rest::is_rest_call(call, &rests));
    add_headline(&mut report, history, resting.futexes());
    report.caveats = caveats::caveats(&report, sums);
    report.caveats.extend(hints(&report));
    report.findings = findings::findings(&report);
    Ok(report)
}

/// How to get names for the code in the headline. Which package a file belongs to is not known here.
fn hints(report: &Report) -> Vec<String> {
    const SHARES: usize = 3;
    let shares = report.headline.iter().flat_map(|headline| &headline.shares);
    let callers = shares
        .take(SHARES)
        .filter_map(|share| share.caller.as_ref());
    let sources = debox_model::report::hints::Sources {
        package_of: |_: &str| None,
        has_debuginfod: false,
    };
    debox_model::report::hints::of_callers(callers, &sources)
}

fn add_headline(report: &mut Report, history: &History, resting: LabelSums) {
    match history.account() {
        Some(account) => {
            report.headline = account.headline.clone();
            report.headline_is_of_run = true;
            report.account = Some(account.totals.clone());
            report.samples.clone_from(&account.samples);
            report.spins.clone_from(&account.spins);
            report.spins_left_out = account.spins_left_out;
            report.spins_left_out_ns = account.spins_left_out_ns;
            let lives = account.threads.iter();
            let lives: BTreeMap<(u32, u32), u64> = lives
                .map(|life| ((life.pid, life.tid), life.totals.user_cpu_ns))
                .collect();
            for thread in &mut report.threads {
                thread.user_cpu_ns = lives.get(&(thread.pid, thread.tid)).copied();
            }
        }
        None => report.headline = headline::of_records(report),
    }
    if let Some(waits) = &mut report.cpu_waits {
        waits.name_group(report.headline.as_ref());
    }
    let words = |headline: Option<&Headline>| {
        headline.map_or_else(Vec::new, |headline| {
            headline::sentences(headline, report.headline_is_of_run)
        })
    };
    let active = headline::active(report, &resting);
    let (headline_text, active_text) = (words(report.headline.as_ref()), words(active.as_ref()));
    (report.headline_text, report.active_text) = (headline_text, active_text);
    report.active = active;
    report.loop_text = headline::blocked_loop(&report.loops, report.active.as_ref());
}

fn call(name: &str, sums: &CallSums, has_irq: bool, points: usize, names: &Names) -> Call {
    let quantile = |part| sums.histogram.quantile(part);
    let mut errors: Vec<(String, u64)> = sums
        .errors
        .iter()
        .map(|(name, count)| (names.get(*name).to_string(), *count))
        .collect();
    errors.sort_by_key(|(name, count)| (Reverse(*count), name.clone()));
    errors.truncate(8);
    Call {
        name: name.to_string(),
        count: sums.count,
        in_flight: sums.in_flight,
        budget: budget(&sums.parts, sums.idle, has_irq),
        resting_ns: 0,
        total_ns: sums.histogram.sum(),
        min_ns: sums.histogram.min(),
        mean_ns: sums.histogram.mean().round() as u64,
        deviation_ns: sums.histogram.deviation().round() as u64,
        median_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: sums.histogram.max(),
        spin_ns: sums.spin,
        faults_minor: sums.faults_minor,
        faults_major: sums.faults_major,
        slept: sums.slept,
        sleeps_left_out: sums.left_out,
        restarted: sums.restarted,
        partial: sums.partial,
        errors,
        cdf: if points > 0 {
            sums.histogram.cdf(points)
        } else {
            Vec::new()
        },
    }
}

/// The last file of a recording has all of them.
fn deadlocks(history: &History) -> Vec<Deadlock> {
    let mut deadlocks: Vec<Deadlock> = Vec::new();
    for deadlock in history.files.iter().flat_map(|file| &file.meta.deadlocks) {
        if !deadlocks.contains(deadlock) {
            deadlocks.push(deadlock.clone());
        }
    }
    deadlocks
}

fn recording(
    history: &History,
    sums: &Aggregate,
    begin: i64,
    calls: &[Call],
    processes: Vec<Process>,
) -> Recording {
    let mut hosts: Vec<String> = Vec::new();
    let mut kernels: Vec<String> = Vec::new();
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut filter = None;
    // Each file has the losses of its recording so far, so the last one has all of them.
    let mut last: BTreeMap<(String, u64), &debox_history::File> = BTreeMap::new();
    for file in &history.files {
        let meta = &file.meta;
        for (list, value) in [(&mut hosts, &meta.host), (&mut kernels, &meta.kernel)] {
            if !list.contains(value) {
                list.push(value.clone());
            }
        }
        if !commands.contains(&meta.command) {
            commands.push(meta.command.clone());
        }
        filter = filter.or_else(|| meta.filter.clone());
        last.insert((meta.host.clone(), meta.started_ns), file);
    }
    let mut lost = debox_history::Lost::default();
    let mut not_recorded = Vec::new();
    let (mut complete, mut filtered_out, mut processes_left_out) = (true, 0u64, 0u64);
    for file in last.values() {
        let of = &file.meta.lost;
        lost.records = lost.records.saturating_add(of.records);
        lost.sleeps = lost.sleeps.saturating_add(of.sleeps);
        lost.stacks = lost.stacks.saturating_add(of.stacks);
        lost.threads = lost.threads.saturating_add(of.threads);
        lost.probe_misses = lost.probe_misses.saturating_add(of.probe_misses);
        lost.unwritten = lost.unwritten.saturating_add(of.unwritten);
        complete &= file.meta.complete;
        filtered_out = filtered_out.saturating_add(file.meta.filtered_out);
        processes_left_out = processes_left_out.saturating_add(file.meta.processes_left_out);
        not_recorded.extend(file.meta.not_recorded.iter().cloned());
    }
    let metas = || history.files.iter().map(|file| &file.meta);
    Recording {
        processes,
        processes_left_out,
        not_recorded,
        files: history
            .files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect(),
        hosts,
        kernels,
        commands,
        cpus: metas().map(|meta| meta.cpus).max().unwrap_or(0),
        filter,
        stacks_from_ns: metas().map(|meta| meta.stacks_from_ns).max().unwrap_or(0),
        begin_ns: begin,
        span_ns: if sums.rows > 0 {
            sums.last.abs_diff(sums.first)
        } else {
            0
        },
        rows: sums.rows,
        calls: calls.iter().map(|call| call.count).sum(),
        threads: sums.threads.sums.len() as u64,
        complete,
        lost,
        filtered_out,
        cut_off_bytes: history.files.iter().map(|file| file.cut_off).sum(),
    }
}

fn matrix(sums: &Aggregate, names: &Names) -> Matrix {
    let mut by_label: BTreeMap<Name, (u64, u64)> = BTreeMap::new();
    let mut by_call: BTreeMap<Name, u64> = BTreeMap::new();
    for ((call, label), cell) in &sums.labels {
        let entry = by_label.entry(*label).or_default();
        entry.0 += cell.sleeps;
        entry.1 = entry.1.saturating_add(cell.blocked);
        let blocked = by_call.entry(*call).or_default();
        *blocked = blocked.saturating_add(cell.blocked);
    }
    let mut labels: Vec<(Name, MatrixLabel)> = by_label
        .into_iter()
        .map(|(label, (sleeps, blocked_ns))| {
            let shown = MatrixLabel {
                label: names.get(label).to_string(),
                class: sums.class_of(label, names),
                sleeps,
                blocked_ns,
            };
            (label, shown)
        })
        .collect();
    labels.sort_by(|(_, a), (_, b)| {
        let key = |label: &MatrixLabel| (label.class == "idle", Reverse(label.blocked_ns));
        (key(a), &a.label).cmp(&(key(b), &b.label))
    });
    let mut calls: Vec<(Name, String, u64)> = by_call
        .into_iter()
        .map(|(call, blocked)| (call, names.get(call).to_string(), blocked))
        .collect();
    calls.sort_by(|(_, a, a_ns), (_, b, b_ns)| (Reverse(a_ns), a).cmp(&(Reverse(b_ns), b)));
    let (labels_left_out, calls_left_out) = (
        labels.len().saturating_sub(MATRIX_LABELS),
        calls.len().saturating_sub(MATRIX_CALLS),
    );
    labels.truncate(MATRIX_LABELS);
    calls.truncate(MATRIX_CALLS);
    let cell = |call: Name, label: Name| {
        let found = sums.labels.get(&(call, label));
        found.map_or_else(Cell::default, |found| Cell {
            sleeps: found.sleeps,
            calls: found.calls,
            blocked_ns: found.blocked,
        })
    };
    Matrix {
        cells: calls
            .iter()
            .map(|(call, ..)| {
                labels
                    .iter()
                    .map(|(label, _)| cell(*call, *label))
                    .collect()
            })
            .collect(),
        labels: labels.into_iter().map(|(_, label)| label).collect(),
        calls: calls.into_iter().map(|(_, name, _)| name).collect(),
        labels_left_out,
        calls_left_out,
    }
}

fn trends(calls: &[(String, Name, &CallSums)], series: &FxHashMap<Name, Series>) -> Vec<Trend> {
    let mut found = Vec::new();
    for (name, key, _) in calls.iter().filter(|(name, ..)| name != USER) {
        let Some(series) = series.get(key) else {
            continue;
        };
        if series.count < trend::INVOCATIONS_MIN {
            continue;
        }
        let of = |cost: fn(&Point) -> u64| {
            let bins = trend::bins(&series.points, series.count, cost);
            let fit = trend::fit(&bins);
            TrendOf {
                grows: fit.is_some_and(|fit| fit.grows())
                    && trend::is_of_a_kind(&series.points, cost),
                rho: fit.map(|fit| fit.rho),
                bins: bins
                    .iter()
                    .map(|bin| (bin.from, bin.to, bin.p10, bin.median, bin.p90))
                    .collect(),
            }
        };
        let every = series.points.len().div_ceil(TREND_POINTS).max(1);
        found.push(Trend {
            call: name.clone(),
            count: series.count,
            cpu: of(|point| point.cpu),
            wall: of(|point| point.wall),
            points: series
                .points
                .iter()
                .step_by(every)
                .map(|point| (point.at, point.wall, point.cpu))
                .collect(),
        });
    }
    // Calls that grow come first. Within each group the order by cost is kept.
    found.sort_by_key(|trend| (!trend.cpu.grows, !trend.wall.grows));
    let growing = found.iter().filter(|trend| trend.cpu.grows).count();
    found.truncate(TRENDS.max(growing.min(2 * TRENDS)));
    found
}

fn threads(sums: &Aggregate, rests: &Rests, names: &Names) -> Vec<Thread> {
    let mut threads: Vec<_> = sums.threads.sums.iter().collect();
    threads.sort_by_key(|(tid, thread)| {
        (Reverse(thread.parts.wall.saturating_sub(thread.idle)), *tid)
    });
    threads
        .into_iter()
        .take(THREADS)
        .map(|(tid, thread)| {
            let rest = rests.of((thread.pid, *tid));
            Thread {
                pid: thread.pid,
                tid: *tid,
                comm: names.get(thread.comm).to_string(),
                calls: thread.calls,
                budget: budget(&thread.parts, thread.idle, sums.has_irq),
                resting_ns: 0,
                user_cpu_ns: None,
                at_rest: rest == Some(Rest::AtRest),
                rest,
            }
        })
        .collect()
}
