// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox report --by`: the time by process, or by unit or container.

use std::io::{self, Write};

use debox_report::{Group, Report};

use crate::options::GroupBy;
use crate::table::grid::{name, note, number, text, Cell, Grid};
use crate::table::processes::shortened;
use crate::table::{heading, shown, TableOptions};
use crate::units;

const ROWS: usize = 20;

pub fn print(
    out: &mut impl Write,
    report: &Report,
    by: GroupBy,
    options: &TableOptions,
) -> io::Result<()> {
    let (groups, title) = match by {
        GroupBy::Process => (&report.by_process, "Which process"),
        GroupBy::Unit => (&report.by_unit, "Which unit or container"),
    };
    heading(out, title, options)?;
    let mut grid = Grid::new([
        name("pid").when_used(),
        name("inside").when_used(),
        text(match by {
            GroupBy::Process => "process",
            GroupBy::Unit => "unit or container",
        }),
        text("unit or container").when_used(),
        number("processes").when_used(),
        number("threads").gives_way(2),
        number("calls").gives_way(3),
        number("time"),
        number("CPU in calls"),
        number("asleep"),
        number("waiting"),
        text("waited for"),
    ]);
    let rows = shown(groups.rows.len(), ROWS, options);
    for group in &groups.rows[..rows] {
        grid.row(cells(group, options));
    }
    grid.print(out, options)?;
    let left = (groups.rows.len() - rows) as u64 + groups.left_out;
    if left > 0 {
        note(
            out,
            &format!("{} more with less time", units::count(left)),
            options,
        )?;
    }
    note(
        out,
        "Time in calls and off the CPU between them, without idle waits and waits for work.",
        options,
    )?;
    match report.recording.says_who_is_unnamed() {
        Some(sentence) => note(out, &sentence, options),
        None => Ok(()),
    }
}

fn cells(group: &Group, options: &TableOptions) -> [Cell; 12] {
    let id = |id: Option<u32>| id.map_or_else(Cell::blank, |id| Cell::text(id.to_string()));
    let budget = &group.budget;
    let aside = budget.idle_ns.saturating_add(group.resting_ns);
    let causes: Vec<String> = group
        .causes
        .iter()
        .map(|cause| format!("{} {}", cause.label, units::time(cause.blocked_ns)))
        .collect();
    [
        id(group.pid),
        id(group.inner_pid),
        Cell::text(shortened(&group.name, options)),
        match &group.place {
            Some(place) => Cell::text(place),
            None => Cell::blank(),
        },
        match group.pid {
            None => Cell::number(group.processes),
            Some(_) => Cell::blank(),
        },
        Cell::number(group.threads),
        Cell::number(group.calls),
        Cell::time(budget.wall_ns.saturating_sub(aside)),
        Cell::time(budget.cpu_ns),
        Cell::time(budget.blocked_ns.saturating_sub(aside)),
        Cell::time(budget.runqueue_ns.saturating_add(budget.preempted_ns)),
        Cell::text(causes.join(", ")),
    ]
}
