//! What the program measured around its calls, on a terminal.

use std::io::{self, Write};

use debox_report::{Distribution, Report, UserLevel};

use crate::table::grid::{name, note, number, Cell, Grid, Tone};
use crate::table::{heading, shown, TableOptions};

const CALLS: usize = 6;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let Some(level) = report.user_level.as_ref() else {
        return Ok(());
    };
    if level.calls.is_empty() {
        return Ok(()); // the caveats say why it is missing
    }
    heading(
        out,
        "Times in the program against times in the kernel",
        options,
    )?;
    let shown = shown(level.calls.len(), CALLS, options);
    both(out, level, shown, options)?;
    let left = level.calls.len() - shown + level.calls_left_out;
    if left > 0 {
        note(out, &format!("… {left} more calls (--all)"), options)?;
    }
    writeln!(out)?;
    between(out, level, shown, options)?;
    let text = "The program's time is from just before the call to just after it; the kernel's from the \
                call's entry to its exit. In between is the way into the kernel and back, with the \
                recording's own probes; what of it was off the CPU is no part of the call, and nor are \
                other calls: of signal handlers, or pieces of a restarted call.";
    note(out, text, options)
}

/// Like Table 2.1 of Ruan's thesis, with one row per call.
fn both(
    out: &mut impl Write,
    level: &UserLevel,
    shown: usize,
    options: &TableOptions,
) -> io::Result<()> {
    let mut grid = Grid::new([
        name("call"),
        number("calls"),
        name("measured in"),
        number("shortest").gives_way(2),
        number("median"),
        number("mean").gives_way(1),
        number("99%"),
        number("longest"),
    ]);
    for call in &level.calls[..shown] {
        let mut row = |cells: [Cell; 2], of: &str, times: &Distribution| {
            let [first, second] = cells;
            grid.row([
                first,
                second,
                Cell::text(of),
                Cell::time(times.min_ns),
                Cell::time(times.median_ns),
                Cell::time(times.mean_ns),
                Cell::time(times.p99_ns),
                Cell::time(times.max_ns),
            ]);
        };
        let named = [Cell::text(&call.call), Cell::number(call.count)];
        row(named, "the program", &call.user);
        row([Cell::blank(), Cell::blank()], "the kernel", &call.kernel);
    }
    grid.print(out, options)
}

/// Time that the program's clock counts in addition to the call, and the parts of the call that it
/// cannot tell apart.
fn between(
    out: &mut impl Write,
    level: &UserLevel,
    shown: usize,
    options: &TableOptions,
) -> io::Result<()> {
    let mut grid = Grid::new([
        name("call"),
        number("program"),
        number("of it cpu"),
        number("blocked"),
        number("for a CPU").when_used(),
        number("outside"),
        number("off the CPU").when_used(),
        number("other calls").when_used().gives_way(1),
        number("median").gives_way(2),
        number("longest").gives_way(1),
    ]);
    for call in &level.calls[..shown] {
        let budget = &call.budget;
        let waits = budget.runqueue_ns.saturating_add(budget.preempted_ns);
        let away = Cell::time(call.away_ns);
        grid.row([
            Cell::text(&call.call),
            Cell::time(call.user.total_ns),
            Cell::time(budget.cpu_ns.saturating_add(budget.irq_ns.unwrap_or(0))),
            Cell::time(budget.blocked_ns),
            Cell::time(waits),
            Cell::time(call.outside.total_ns),
            if call.away_ns > call.kernel.total_ns / 10 {
                away.tone(Tone::Warn)
            } else {
                away
            },
            Cell::time(call.calls_ns),
            Cell::time(call.outside.median_ns),
            Cell::time(call.outside.max_ns),
        ]);
    }
    grid.print(out, options)
}
