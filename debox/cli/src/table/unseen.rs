//! What could not be seen. Without it, the report would look complete.

use std::cmp::Reverse;
use std::io::{self, Write};

use anstyle::Style;
use debox::report::{Lost, Report};

use super::grid::{name, note, number, text, Cell, Grid, Tone};
use super::{heading, line, owners, TableOptions};
use crate::units;

/// Prints the calls that slept but that the user tap did not see.
pub fn print_untapped(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.untapped.is_empty() {
        return Ok(());
    }
    heading(out, "Slept unseen by the user tap", options)?;
    let mut calls: Vec<_> = report.untapped.iter().collect();
    calls.sort_by_key(|call| Reverse(call.blocked_ns));
    let mut grid = Grid::new([
        name("call"),
        name("label"),
        number("sleeps"),
        number("time"),
        text("held, when it began, by").when_used(),
    ]);
    for call in calls {
        grid.row([
            Cell::text(&call.syscall),
            Cell::text(&call.label),
            Cell::number(call.count),
            Cell::time(call.blocked_ns),
            Cell::text(if owners::is_any_known(&call.owners) {
                owners::names(&call.owners, options)
            } else {
                String::new()
            }),
        ]);
    }
    grid.print(out, options)
}

/// Prints the engine's notes, and what was seen but could not be kept.
pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let losses = losses(&report.lost);
    // The reason for an incomplete report is printed at the top.
    let is_shown = |sentence: &&String| Some(*sentence) != report.incomplete.as_ref();
    let sentences: Vec<&String> = report.unseen.iter().filter(is_shown).collect();
    if sentences.is_empty() && losses.is_empty() {
        return Ok(());
    }
    heading(out, "What could not be seen", options)?;
    let mut grid = Grid::new([text("")]);
    for loss in losses {
        grid.row([Cell::text(loss).tone(Tone::Warn)]);
    }
    for sentence in sentences {
        grid.row([Cell::text(sentence)]);
    }
    grid.print(out, options)
}

/// Prints how to get names for code in the report that has none.
pub fn print_hints(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.hints.is_empty() {
        return Ok(());
    }
    heading(out, "Names that are missing", options)?;
    for hint in &report.hints {
        note(out, hint, options)?;
    }
    Ok(())
}

/// Prints the conditions of the measurement: readers of a pasted report need them.
pub fn print_conditions(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    let mut text = format!(
        "Linux {}, {} tap, detail {}",
        report.kernel,
        report.tap,
        report.detail.join(", ")
    );
    if report.totals.irq_ns.is_none() {
        text.push_str("; interrupts count as CPU time");
    }
    writeln!(out)?;
    line(out, &text, Style::new().dimmed(), options)
}

fn losses(lost: &Lost) -> Vec<String> {
    let kinds = [
        (lost.records, "record was", "records were", "not written"),
        (
            lost.sleeps,
            "sleep has",
            "sleeps have",
            "no site here; the time is in the calls",
        ),
        (lost.stacks, "stack was", "stacks were", "not taken"),
        (
            lost.threads,
            "thread was",
            "threads were",
            "not watched, or ended without totals",
        ),
        (
            lost.rows,
            "row of a table",
            "rows of a table",
            "(wakers, call sites) did not fit",
        ),
        (
            lost.probe_misses,
            "time",
            "times",
            "the kernel skipped a probe",
        ),
    ];
    let sentence = |(count, one, many, what): (u64, &str, &str, &str)| {
        let noun = if count == 1 { one } else { many };
        format!("lost: {} {noun} {what}", units::count(count))
    };
    let refused = (lost.refused > 0).then(|| {
        let noun = if lost.refused == 1 { "count" } else { "counts" };
        format!(
            "refused: {} {noun} that programs keep of their own calls cannot be true",
            units::count(lost.refused)
        )
    });
    kinds
        .into_iter()
        .filter(|kind| kind.0 > 0)
        .map(sentence)
        .chain(refused)
        .collect()
}
