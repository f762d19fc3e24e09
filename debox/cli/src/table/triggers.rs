//! The calls that matched the user's triggers.

use std::io::{self, Write};

use debox::report::{Report, Trigger};

use super::grid::{name, note, number, text, Cell, Grid};
use super::{heading, shown, stack, TableOptions};
use crate::units;

/// Calls that are listed for each trigger, at most.
const CALLS: usize = 10;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    for trigger in &report.triggers {
        heading(out, &format!("Trigger: {}", trigger.predicate), options)?;
        note(out, &summary(trigger), options)?;
        if trigger.calls.is_empty() {
            continue;
        }
        let mut grid = Grid::new([
            number("at"),
            number("tid"),
            name("name"),
            name("call"),
            number("returned").gives_way(2),
            number("time"),
            number("asleep"),
            text("on").when_used(),
            text("called from"),
            text("").when_used(),
        ]);
        let shown = shown(trigger.calls.len(), CALLS, options);
        for call in &trigger.calls[..shown] {
            grid.row([
                Cell::time(call.at_ns),
                Cell::id(call.tid),
                Cell::text(&call.comm),
                Cell::text(&call.syscall),
                Cell::text(call.ret.to_string()),
                Cell::time(call.wall_ns),
                Cell::time(call.blocked_ns),
                Cell::text(call.label.as_deref().unwrap_or_default()),
                Cell::text(stack(&call.frames, call.caller.as_ref(), options)),
                Cell::text(if call.late { "late" } else { "" }),
            ]);
        }
        grid.print(out, options)?;
    }
    Ok(())
}

/// How often the trigger fired, and why not more often.
fn summary(trigger: &Trigger) -> String {
    let calls = if trigger.fired == 1 { "call" } else { "calls" };
    let mut parts = vec![format!("Fired for {} {calls}", units::count(trigger.fired))];
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            parts.push(format!("{} {what}", units::count(count)));
        }
    };
    add(trigger.late, "of them late, after the program had gone on");
    add(trigger.suppressed, "kept back by the limit on firings");
    add(trigger.undecided, "could not be decided");
    if trigger.signals_failed > 0 {
        let failed = units::count(trigger.signals_failed);
        parts.push(format!("signals that could not be sent: {failed}"));
    }
    let listed = trigger.calls.len() as u64;
    if trigger.unlisted > 0 {
        parts.push(format!("listed are the first {}", units::count(listed)));
    }
    format!("{}.", parts.join("; "))
}
