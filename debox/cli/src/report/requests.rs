// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox report --requests`: what a server did for its requests.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use debox_history::History;
use debox_report::requests::{requests, Requests};
use kit_console::Allowed;
use kit_files::output;

use crate::options::Report;
use crate::output::terminal_width;
use crate::table::grid::{name, note, number, text, Cell, Grid};
use crate::table::{heading, TableOptions};
use crate::units;

/// Calls of the example that are shown without `--all`.
const EXAMPLE: usize = 40;
/// Calls that are named in a phase's row.
const CALLS: usize = 5;

pub fn report(history: &History, arguments: &Report) -> Result<u8> {
    let found = requests(history, &arguments.phase)?;
    if let Some(path) = &arguments.json {
        let mut bytes =
            serde_json::to_vec(&found).context("the phases cannot be written as JSON")?;
        bytes.push(b'\n');
        if path == Path::new("-") {
            kit_console::print(Allowed::Json, |out| out.write_all(&bytes))?;
            return Ok(0);
        }
        output::replace(path, &bytes)?;
    }
    let allowed = kit_console::colours();
    let options = TableOptions {
        color: allowed == Allowed::Colours,
        width: terminal_width(1),
        all: arguments.all,
    };
    kit_console::print(allowed, |out| print(out, &found, &options))?;
    Ok(0)
}

fn print(out: &mut impl Write, found: &Requests, options: &TableOptions) -> io::Result<()> {
    let headline = format!(
        "{} on {}; a request took {} on average, {} to {}",
        units::counted(found.requests, "request"),
        units::counted(found.connections, "accepted connection"),
        units::time(found.mean_ns as u64),
        units::time(found.min_ns),
        units::time(found.max_ns),
    );
    note(out, &headline, options)?;
    phases(out, found, options)?;
    example(out, found, options)?;
    outside(out, found, options)?;
    for caveat in &found.caveats {
        note(out, caveat, options)?;
    }
    Ok(())
}

fn phases(out: &mut impl Write, found: &Requests, options: &TableOptions) -> io::Result<()> {
    heading(out, "What a request is made of, on average", options)?;
    let each = |ns: u64| (ns as f64 / found.requests.max(1) as f64).round() as u64;
    let parts = found.phases.iter().map(|row| row.wall_ns);
    let whole: u64 = parts.sum::<u64>() + found.elsewhere_ns;
    let share = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / whole.max(1) as f64);
    let mut grid = Grid::new([
        name("phase"),
        number("time"),
        number("share"),
        number("cpu"),
        number("blocked"),
        number("for a CPU"),
        text("calls"),
    ]);
    for row in &found.phases {
        let mut calls: Vec<String> = row
            .calls
            .iter()
            .take(if options.all { usize::MAX } else { CALLS })
            .map(|call| {
                let count = call.count as f64 / found.requests.max(1) as f64;
                format!("{} x {count:.2}", call.call)
            })
            .collect();
        if calls.len() < row.calls.len() {
            calls.push(format!("{} more (--all)", row.calls.len() - calls.len()));
        }
        grid.row([
            Cell::text(&row.phase),
            Cell::time(each(row.wall_ns)),
            Cell::text(share(row.wall_ns)),
            Cell::time(each(row.cpu_ns)),
            Cell::time(each(row.blocked_ns)),
            Cell::time(each(row.cpu_wait_ns)),
            Cell::text(calls.join(", ")),
        ]);
    }
    if found.elsewhere_ns > 0 {
        grid.row([
            Cell::text("other work, or none"),
            Cell::time(each(found.elsewhere_ns)),
            Cell::text(share(found.elsewhere_ns)),
            Cell::time_if(None),
            Cell::text(""),
            Cell::text(""),
            Cell::text("the thread worked for others, or the client was waited for"),
        ]);
    }
    grid.print(out, options)
}

fn example(out: &mut impl Write, found: &Requests, options: &TableOptions) -> io::Result<()> {
    if found.example.is_empty() {
        return Ok(());
    }
    heading(out, "The first request, call by call", options)?;
    let mut grid = Grid::new([
        number("at"),
        name("phase"),
        text("call"),
        number("returned"),
        number("took"),
    ]);
    let shown = match options.all {
        true => found.example.len(),
        false => found.example.len().min(EXAMPLE),
    };
    for call in &found.example[..shown] {
        let [first, second, third] = call.args.map(|word| match word >> 32 {
            0 => (word as u32 as i32).to_string(),
            _ => format!("{word:#x}"),
        });
        grid.row([
            Cell::time(call.at_ns),
            Cell::text(&call.phase),
            Cell::text(format!("{}({first}, {second}, {third})", call.call)),
            Cell::text(call.ret.to_string()),
            Cell::time(call.wall_ns),
        ]);
    }
    grid.print(out, options)?;
    match shown < found.example.len() {
        true => note(
            out,
            &format!("… {} more calls (--all)", found.example.len() - shown),
            options,
        ),
        false => Ok(()),
    }
}

fn outside(out: &mut impl Write, found: &Requests, options: &TableOptions) -> io::Result<()> {
    if found.outside.is_empty() {
        return Ok(());
    }
    heading(out, "Calls of no request", options)?;
    let mut grid = Grid::new([name("call"), number("calls"), number("time")]);
    let shown = match options.all {
        true => found.outside.len(),
        false => found.outside.len().min(10),
    };
    for row in &found.outside[..shown] {
        grid.row([
            Cell::text(&row.call),
            Cell::number(row.count),
            Cell::time(row.wall_ns),
        ]);
    }
    grid.print(out, options)
}
