//! The slowest calls of a recording, and those still in flight at its end: what each waited for most, and
//! which code path made it.

use std::io::{self, Write};

use debox_report::{Report, SlowCall};

use crate::table::grid::{name, note, number, text, Cell, Grid};
use crate::table::{heading, shown, TableOptions};
use crate::units;

const SLOWEST: usize = 10;
/// Frames of a stack that are shown, innermost first.
const FRAMES: usize = 16;
/// Calls whose stack is shown: the slowest; `--all` shows the others, too.
const STACKS: usize = 1;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let title = "The slowest calls, without idle waits";
    table(out, title, &report.slowest, options)
}

pub fn in_flight(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let title = "Calls that had not returned when the recording ended";
    table(out, title, &report.in_flight, options)
}

fn table(
    out: &mut impl Write,
    title: &str,
    calls: &[SlowCall],
    options: &TableOptions,
) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    heading(out, title, options)?;
    let mut grid = Grid::new([
        name("call"),
        number("wall"),
        number("at"),
        name("thread"),
        text("where it was longest"),
        text("from").when_used().gives_way(1),
    ]);
    let calls = &calls[..shown(calls.len(), SLOWEST, options)];
    for call in calls {
        grid.row([
            Cell::text(&call.call),
            Cell::time(call.budget.wall_ns),
            Cell::time(call.at_ns),
            Cell::text(format!("{} ({})", call.comm, call.tid)),
            Cell::text(whereabouts(call)),
            Cell::text(call.caller.as_deref().unwrap_or("")),
        ]);
    }
    grid.print(out, options)?;
    let with_stack = calls.iter().filter(|call| !call.stack.is_empty());
    for call in with_stack.take(if options.all { SLOWEST } else { STACKS }) {
        stack(out, call, options)?;
    }
    Ok(())
}

/// What took most of the call, and its longest sleep. By wall time alone, a call that waited for a CPU
/// looks as if it had waited for a disk.
fn whereabouts(call: &SlowCall) -> String {
    let budget = &call.budget;
    let others = [
        (budget.runqueue_ns, "waiting for a CPU"),
        (budget.preempted_ns, "pushed off the CPU"),
        (budget.cpu_ns, "on the CPU"),
    ];
    let mut words = Vec::new();
    if let Some((ns, part)) = others.into_iter().max_by_key(|(ns, _)| *ns) {
        if ns > budget.blocked_ns {
            words.push(format!("{} {part}", units::time(ns)));
        }
    }
    if let Some(sleep) = call.sleeps.first() {
        let mut sentence = format!("{} {}", sleep.label, units::time(sleep.blocked_ns));
        if let Some(resource) = &sleep.resource {
            sentence.push_str(&format!(", {resource}"));
        }
        if let Some(owner) = &sleep.owner {
            sentence.push_str(&match owner.as_str() {
                "not known" => ", by whom it was held is not known".to_string(),
                owner => format!(", held by {owner}"),
            });
        }
        if sleep.in_flight {
            words.push(format!("{sentence}, still going on"));
        } else {
            words.push(format!("{sentence}, ended by {}", sleep.waker));
        }
    }
    words.join("; ")
}

fn stack(out: &mut impl Write, call: &SlowCall, options: &TableOptions) -> io::Result<()> {
    let title = format!(
        "The program's stack in this {} of {}:",
        call.call,
        units::time(call.budget.wall_ns)
    );
    note(out, &title, options)?;
    for frame in call.stack.iter().rev().take(FRAMES) {
        note(out, &format!("  {frame}"), options)?;
    }
    let left = call.stack.len().saturating_sub(FRAMES);
    if left > 0 {
        note(out, &format!("  … {left} more functions"), options)?;
    }
    Ok(())
}
