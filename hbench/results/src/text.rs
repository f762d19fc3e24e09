// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results on a terminal. Every field that comes from a file is made printable.

use std::io::{self, Write};

use kit_console::printable;
use kit_console::table::Grid;
use kit_units::{bytes, counted};

use crate::compare::{Comparison, Difference, Verdict};
use crate::figures::{without_values, Figure, Summary, HALF_WIDTH_WANTED};
use crate::hierarchy::Explained;
use crate::meta::{Clock, Meta, State};
use crate::words::{percent, rate, time};

/// Differences that are shown without being asked for.
const SHOWN: usize = 20;

/// A table is at least so wide, in columns of the terminal.
const WIDTH_MIN: usize = 60;

pub(crate) fn grid(heads: &[&str], width: usize) -> Grid {
    Grid::with_remarks(heads, width.max(WIDTH_MIN))
}

/// The headline, the machine, the table by groups, and what is missing.
pub fn summary(out: &mut impl Write, summary: &Summary, width: usize) -> io::Result<()> {
    headline(out, summary)?;
    machine(out, summary.meta)?;
    let mut group = "";
    let mut table: Option<Grid> = None;
    for figure in &summary.figures {
        if figure.group != group {
            if let Some(table) = table.take() {
                table.print(out)?;
            }
            group = &figure.group;
            let head = ["benchmark", ">time", ">+/-", ">rate", "remark"];
            writeln!(out, "\n{}", printable(group))?;
            table = Some(grid(&head, width));
        }
        if let Some(table) = &mut table {
            table.row([
                figure.benchmark.clone(),
                time(figure.operation_ns),
                figure.half_width().map_or("?".to_string(), percent),
                figure.bytes_per_second.map_or(String::new(), rate),
                remark(figure),
            ]);
        }
    }
    if let Some(table) = table {
        table.print(out)?;
    }
    missing(out, summary.meta)
}

fn headline(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let (figures, meta) = (&summary.figures, summary.meta);
    let close = |figure: &&Figure| {
        figure
            .half_width()
            .is_some_and(|half| half <= HALF_WIDTH_WANTED)
    };
    let close = figures.iter().filter(close).count();
    let left_out = without_values(meta).len();
    let state = match meta.state {
        State::Complete => "",
        State::Interrupted => "Interrupted. ",
        State::Running => "The run did not end. ",
    };
    writeln!(
        out,
        "{state}{} measured, {} of {} rounds in {}; {} known to 2 % or better; {} not measured.",
        counted(figures.len() as u64, "benchmark"),
        meta.rounds_done,
        meta.rounds,
        time(meta.duration_ns as f64),
        close,
        left_out,
    )?;
    let names = |has: &dyn Fn(&Figure) -> bool| figures.iter().filter(|figure| has(figure)).count();
    let (two, drifting) = (names(&|f| f.modes.is_some()), names(&|f| f.drift.is_some()));
    let disturbed = names(&|f| f.disturbed > 0.0);
    let shapes = match (meta.rounds_done as usize) < kit_stats::VALUES_MIN {
        true => format!(
            "Fewer than {} rounds do not show groups or a drift",
            kit_stats::VALUES_MIN
        ),
        false => format!("{two} fall into two groups, {drifting} drift"),
    };
    writeln!(
        out,
        "{shapes}; other programs disturbed samples of {disturbed}. Noise: {} of the CPU, {} at most at once.",
        percent(meta.noise.taken_share),
        time(meta.noise.longest_ns as f64)
    )
}

fn machine(out: &mut impl Write, meta: &Meta) -> io::Result<()> {
    let environment = &meta.environment;
    let caches: Vec<String> = environment
        .cache_bytes
        .iter()
        .map(|size| bytes(*size))
        .collect();
    let mut words = vec![
        format!("Linux {}", environment.kernel),
        environment
            .cpu_model
            .clone()
            .unwrap_or_else(|| environment.architecture.clone()),
        counted(u64::from(environment.cpus_online), "CPU"),
    ];
    if !caches.is_empty() {
        words.push(format!("caches {}", caches.join(", ")));
    }
    words.extend(environment.virtualization.clone());
    words.extend(environment.container.clone());
    let governor = environment.frequency_governor.as_ref();
    words.extend(governor.map(|governor| format!("governor {governor}")));
    let quota = environment.quota_cpus;
    words.extend(quota.map(|cpus| format!("limited to {cpus:.2} CPUs")));
    words.push(match meta.clock {
        Clock::Tsc { .. } => "clock: time-stamp counter".to_string(),
        Clock::MonotonicRaw { .. } => "clock: the kernel's".to_string(),
    });
    words.extend(
        environment
            .file_system
            .as_ref()
            .map(|kind| format!("files on {kind}")),
    );
    if meta.instances > 1 {
        words.push(format!(
            "{} processes at the same time: times as each saw them, rates of all together, {} dropped",
            meta.instances,
            counted(meta.samples_dropped, "sample")
        ));
    }
    words.extend(meta.under.as_ref().map(|under| format!("under: {under}")));
    let words: Vec<_> = words.iter().map(|word| printable(word)).collect();
    writeln!(out, "{}", words.join("; "))
}

fn remark(figure: &Figure) -> String {
    let mut words = Vec::new();
    if let Some(modes) = &figure.modes {
        words.push(format!(
            "two groups: {} and {} ({})",
            time(modes.low_ns),
            time(modes.high_ns),
            percent(modes.share_high)
        ));
    }
    if let Some(change) = figure.drift {
        words.push(format!("drifts by {}", percent(change)));
    }
    if figure.disturbed > 0.0 {
        words.push(format!(
            "{} of the samples disturbed",
            percent(figure.disturbed)
        ));
    }
    words.join("; ")
}

fn missing(out: &mut impl Write, meta: &Meta) -> io::Result<()> {
    let without = without_values(meta);
    if !without.is_empty() {
        writeln!(out, "\nNot measured:")?;
    }
    for left_out in without {
        let wrong = if left_out.is_wrong {
            "wrong result: "
        } else {
            ""
        };
        let (name, reason) = (printable(&left_out.benchmark), printable(&left_out.reason));
        writeln!(out, "  {name}: {wrong}{reason}")?;
    }
    let lost: Vec<_> = meta
        .left_out
        .iter()
        .filter(|one| one.round.is_some())
        .collect();
    if !lost.is_empty() {
        writeln!(out, "\nMissing in some rounds:")?;
    }
    for left_out in lost {
        let round = left_out.round.unwrap_or(0) + 1;
        let (name, reason) = (printable(&left_out.benchmark), printable(&left_out.reason));
        writeln!(out, "  {name}, round {round}: {reason}")?;
    }
    Ok(())
}

pub fn comparison(
    out: &mut impl Write,
    comparison: &Comparison,
    shows_all: bool,
    width: usize,
) -> io::Result<()> {
    let count = |verdict| {
        let differences = comparison.differences.iter();
        differences.filter(|one| one.verdict == verdict).count()
    };
    let (slower, faster) = (count(Verdict::Slower), count(Verdict::Faster));
    writeln!(
        out,
        "In B, {} slower, {faster} faster; {} show no difference{}.",
        counted(slower as u64, "benchmark"),
        count(Verdict::Same),
        match count(Verdict::Unknown) {
            0 => String::new(),
            unknown => format!(", {unknown} have too few samples to tell"),
        }
    )?;
    let changed = |one: &&Difference| matches!(one.verdict, Verdict::Slower | Verdict::Faster);
    let all: Vec<&Difference> = match shows_all {
        true => comparison.differences.iter().collect(),
        false => comparison.differences.iter().filter(changed).collect(),
    };
    let shown = if shows_all {
        all.len()
    } else {
        SHOWN.min(all.len())
    };
    if shown > 0 {
        let head = ["benchmark", ">A", ">B", ">B : A", ">interval", "verdict"];
        let mut table = grid(&head, width);
        for one in &all[..shown] {
            let ratio = |ratio: f64| format!("{ratio:.3}");
            table.row([
                one.benchmark.clone(),
                time(one.a_ns),
                time(one.b_ns),
                one.ratio.map_or("?".to_string(), ratio),
                one.interval.map_or("?".to_string(), |(low, high)| {
                    format!("{low:.3} to {high:.3}")
                }),
                verdict(one.verdict).to_string(),
            ]);
        }
        writeln!(out)?;
        table.print(out)?;
    }
    if shown < all.len() {
        writeln!(out, "  and {} more (--all)", all.len() - shown)?;
    }
    listed(out, "Only in A", &comparison.only_a)?;
    listed(out, "Only in B", &comparison.only_b)?;
    listed(out, "Two groups or a drift in A", &comparison.unsteady_a)?;
    listed(out, "Two groups or a drift in B", &comparison.unsteady_b)?;
    for (left_out, which) in [(&comparison.left_out_a, "A"), (&comparison.left_out_b, "B")] {
        if !left_out.is_empty() {
            writeln!(out, "\nNot measured in {which}:")?;
        }
        for one in left_out {
            let (name, reason) = (printable(&one.benchmark), printable(&one.reason));
            writeln!(out, "  {name}: {reason}")?;
        }
    }
    if !comparison.environment.is_empty() {
        writeln!(out, "\nWhat differs between the machines:")?;
    }
    for changed in &comparison.environment {
        let (a, b) = (printable(&changed.a), printable(&changed.b));
        writeln!(out, "  {}: {a} / {b}", printable(&changed.name))?;
    }
    Ok(())
}

fn listed(out: &mut impl Write, what: &str, names: &[String]) -> io::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| printable(name)).collect();
    writeln!(out, "\n{what}: {}", names.join(", "))
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Same => "no difference",
        Verdict::Unknown => "too few samples",
    }
}

/// In parentheses.
fn interval(of: Option<(f64, f64)>) -> String {
    match of {
        Some((low, high)) => format!("({} to {})", time(low), time(high)),
        None => "(?)".to_string(),
    }
}

/// Each node, its parts, and what they leave unexplained.
pub fn explanation(out: &mut impl Write, nodes: &[Explained], width: usize) -> io::Result<()> {
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: measured {} {}, predicted {} {}, residual {} {}, {} of the measured time",
            printable(&node.benchmark),
            time(node.measured_ns),
            interval(node.measured_interval_ns),
            time(node.predicted_ns),
            interval(node.predicted_interval_ns),
            time(node.residual_ns),
            interval(node.residual_interval_ns),
            percent(node.residual_ns / node.measured_ns)
        )?;
        let mut table = grid(&["part", ">time", ">share", "how"], width);
        for part in &node.parts {
            table.row([
                part.benchmark.clone(),
                time(part.ns),
                percent(part.ns / node.measured_ns),
                part.how.clone(),
            ]);
        }
        table.row([
            "residual".to_string(),
            time(node.residual_ns),
            percent(node.residual_ns / node.measured_ns),
            node.residual.clone(),
        ]);
        table.print(out)?;
    }
    Ok(())
}
