//! The kernel functions that calls entered, as a tree.

use std::cmp::Reverse;
use std::io::{self, Write};

use anstyle::Style;
use debox::report::{Report, Trace, TraceCall, TraceFunction, TraceLost};

use super::grid::{name, note, number, text, Cell, Grid, Tone};
use super::{heading, line, shown, TableOptions};
use crate::units;

/// Calls whose functions are shown, at most.
const CALLS: usize = 4;
/// Tracepoints in one line, at most.
const EVENTS: usize = 8;
/// Percentage of a call's time or samples: functions below it are shown only with `--all-rows`.
const SHARE_MIN: u64 = 2;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let Some(trace) = &report.trace else {
        return Ok(());
    };
    heading(out, "Inside the calls", options)?;
    note(out, &how(trace), options)?;
    let told: Vec<&TraceCall> = trace.tree.iter().collect();
    let shown = shown(told.len(), CALLS, options);
    for call in &told[..shown] {
        print_call(out, report, call, options)?;
    }
    if shown < told.len() {
        let names: Vec<&str> = told[shown..]
            .iter()
            .map(|call| call.syscall.as_str())
            .collect();
        note(out, &format!("and in {}", names.join(", ")), options)?;
    }
    if trace.tree.is_empty() {
        note(out, "nothing was entered", options)?;
    }
    print_losses(out, trace, options)
}

/// What the numbers mean and how they were measured.
fn how(trace: &Trace) -> String {
    let Some(period) = trace.period_ns else {
        return format!(
            "{} kernel functions, entry and return of each ({}); their time includes what watching \
             costs",
            units::count(trace.functions_attached),
            trace.method
        );
    };
    let lacks: Vec<String> = trace
        .instead_of
        .iter()
        .map(|lack| format!("{} {}", lack.method, lack.why))
        .collect();
    let because = if lacks.is_empty() {
        String::new()
    } else {
        format!("; function probes: {}", lacks.join(", "))
    };
    format!(
        "samples of the stack, one each {} on a CPU: how often, not how long{because}",
        units::time(period)
    )
}

fn print_call(
    out: &mut impl Write,
    report: &Report,
    call: &TraceCall,
    options: &TableOptions,
) -> io::Result<()> {
    writeln!(out)?;
    let calls = report
        .syscalls
        .iter()
        .find(|row| row.name == call.syscall)
        .map_or(0, |row| row.calls);
    let title = match (call.samples, call.total_ns) {
        (Some(0), _) => format!(
            "{}: {} calls, no samples",
            call.syscall,
            units::count(calls)
        ),
        (Some(samples), _) => format!(
            "{}: {} calls, {} samples",
            call.syscall,
            units::count(calls),
            units::count(samples)
        ),
        (None, total) => format!(
            "{}: {} calls, {} in these functions",
            call.syscall,
            units::count(calls),
            units::time(total.unwrap_or(0))
        ),
    };
    line(out, &format!("  {title}"), Style::new(), options)?;
    let whole = call.samples.or(call.total_ns).unwrap_or(0);
    let mut grid = if call.samples.is_some() {
        Grid::new([number("share"), number("samples"), name("function")])
    } else {
        Grid::new([
            number("share"),
            number("time"),
            number("self"),
            number("asleep").when_used(),
            number("entered"),
            name("function"),
        ])
    };
    let mut left_out = 0;
    add_rows(&mut grid, &call.functions, whole, 0, options, &mut left_out);
    if !call.functions.is_empty() {
        grid.print(out, options)?;
    }
    if left_out > 0 {
        let text = format!(
            "{} more below {SHARE_MIN} % (--all-rows shows them)",
            units::count(left_out)
        );
        note(out, &text, options)?;
    }
    print_events(out, call, options)
}

/// The probes limit the depth.
fn add_rows(
    grid: &mut Grid,
    functions: &[TraceFunction],
    whole: u64,
    depth: usize,
    options: &TableOptions,
    left_out: &mut u64,
) {
    for function in functions {
        let weight = function.samples.or(function.total_ns).unwrap_or(0);
        if !options.all && weight.saturating_mul(100) < whole.saturating_mul(SHARE_MIN) {
            *left_out += 1;
            continue;
        }
        let share = (weight as f64 / whole.max(1) as f64) * 100.0;
        let share = Cell::text(format!("{share:.0}%"));
        // The grid keeps blanks inside a cell.
        let label = Cell::text(format!("{:1$}{2}", "", depth * 2, function.function));
        let entered = function.entered.unwrap_or(0);
        match function.samples {
            Some(samples) => grid.row([share, Cell::number(samples), label]),
            None => grid.row([
                share,
                Cell::time(weight),
                Cell::time_if(function.self_ns),
                Cell::time_if(function.blocked_ns),
                Cell::number(entered),
                label,
            ]),
        }
        add_rows(
            grid,
            &function.children,
            whole,
            depth + 1,
            options,
            left_out,
        );
    }
}

fn print_events(out: &mut impl Write, call: &TraceCall, options: &TableOptions) -> io::Result<()> {
    if call.events.is_empty() {
        return Ok(());
    }
    let mut events: Vec<_> = call.events.iter().collect();
    events.sort_by_key(|event| Reverse(event.count));
    let shown = shown(events.len(), EVENTS, options);
    let mut names: Vec<String> = events[..shown]
        .iter()
        .map(|event| format!("{}×{}", event.event, units::count(event.count)))
        .collect();
    if shown < events.len() {
        names.push(format!("{} more", events.len() - shown));
    }
    note(out, &format!("passed: {}", names.join(", ")), options)
}

fn print_losses(out: &mut impl Write, trace: &Trace, options: &TableOptions) -> io::Result<()> {
    let mut sentences = losses(&trace.lost);
    if trace.in_interrupts > 0 {
        sentences.push(format!(
            "{} in interrupts on top of calls are not the calls' and left out",
            units::count(trace.in_interrupts)
        ));
    }
    let denied: u64 = trace.denied.iter().map(|denied| denied.count).sum();
    if denied > 0 {
        let why: Vec<String> = trace
            .denied
            .iter()
            .map(|denied| format!("{} {}", units::count(denied.count), denied.why))
            .collect();
        sentences.push(format!(
            "functions that were not probed: {}",
            why.join(", ")
        ));
    }
    if sentences.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut grid = Grid::new([text("")]);
    for sentence in sentences {
        grid.row([Cell::text(sentence).tone(Tone::Quiet)]);
    }
    grid.print(out, options)
}

fn losses(lost: &TraceLost) -> Vec<String> {
    let kinds = [
        (lost.depth, "functions entered deeper than --trace-depth"),
        (lost.nodes, "functions entered did not fit the tree"),
        (
            lost.threads,
            "functions entered by threads beyond the first 4096",
        ),
        (
            lost.unreturned,
            "functions entered whose return was not seen",
        ),
        (
            lost.unmatched,
            "returns of functions whose entry was not seen",
        ),
        (lost.missed, "times the kernel skipped a probe of the tree"),
        (lost.stacks, "samples without a stack"),
        (lost.events, "tracepoints passed did not fit"),
    ];
    kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("lost: {} {what}", units::count(*count)))
        .collect()
}
