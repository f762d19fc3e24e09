//! Per call: how often, how long, and how its time is divided.

use std::cmp::Reverse;
use std::io::{self, Write};

use debox::report::{Report, Syscall};

use super::grid::{name, number, text, Cell, Column, Grid, Tone};
use super::{heading, shown, stack, TableOptions};
use crate::units;

/// Leaves room for the reasons on the first screen.
const CALLS: usize = 15;
const CALL_SITES: usize = 10;
/// The row for time between calls, which is not a call.
const USER: &str = "(user)";

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    heading(out, "Per call", options)?;
    let (user, mut calls): (Vec<&Syscall>, Vec<&Syscall>) =
        report.syscalls.iter().partition(|call| call.name == USER);
    if calls.is_empty() && user.is_empty() {
        return writeln!(out, "  no call ended while it was watched");
    }
    calls.sort_by_key(|call| (Reverse(call.wall_ns), call.name.as_str()));

    let mut grid = Grid::new(columns(report));
    let shown = shown(calls.len(), CALLS, options);
    for call in &calls[..shown] {
        grid.row(row(call));
    }
    if shown < calls.len() {
        let more = sum(
            &calls[shown..],
            &format!("… {} more calls", calls.len() - shown),
        );
        grid.quiet_row(without_times(row(&more)));
    }
    for user in &user {
        let mut cells = row(user);
        // Intervals between calls are not calls and cannot fail.
        cells[1] = Cell::unmeasured();
        cells[2] = Cell::unmeasured();
        grid.row(cells);
    }
    grid.row(without_times(row(&total(report, &calls))));
    grid.print(out, options)
}

/// Detail `callsites`: where in the program the calls came from.
pub fn print_call_sites(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.call_sites.is_empty() {
        return Ok(());
    }
    let title = match report.slow_ns {
        Some(slow) => format!(
            "From where it called, calls of {} and more",
            units::time(slow)
        ),
        None => "From where it called".to_string(),
    };
    heading(out, &title, options)?;
    let mut sites: Vec<_> = report.call_sites.iter().collect();
    sites.sort_by_key(|site| Reverse(site.wall_ns));
    let columns = [
        name("call"),
        number("calls"),
        number("wall"),
        number("blocked"),
        text("from"),
    ];
    let mut grid = Grid::new(columns);
    let shown = shown(sites.len(), CALL_SITES, options);
    for site in &sites[..shown] {
        grid.row([
            Cell::text(&site.syscall),
            Cell::number(site.calls),
            Cell::time(site.wall_ns),
            Cell::time(site.blocked_ns),
            Cell::text(stack(&site.frames, site.caller.as_ref(), options)),
        ]);
    }
    let rest = &sites[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more", rest.len())),
            Cell::number(rest.iter().map(|site| site.calls).sum()),
            Cell::time(rest.iter().map(|site| site.wall_ns).sum()),
            Cell::time(rest.iter().map(|site| site.blocked_ns).sum()),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

/// The columns. On a narrow terminal, those with the highest rank are dropped first.
fn columns(report: &Report) -> Vec<Column> {
    let major = report
        .syscalls
        .iter()
        .any(|call| call.faults_major > Some(0));
    vec![
        name("call"),
        number("calls"),
        number("errors").gives_way(2),
        number("restarts").when_used().gives_way(8),
        number("wall"),
        number("cpu"),
        number("blocked"),
        number("runqueue").gives_way(1),
        number("preempted").gives_way(4),
        number("irq").when_used(),
        number("outside").when_used(),
        number("spin").when_used().gives_way(7),
        number(if major { "faults+major" } else { "faults" }).gives_way(6),
        number("read").when_used(),
        number("written").when_used(),
        number("p50").gives_way(5),
        number("p99"),
        number("max").gives_way(3),
    ]
}

fn row(call: &Syscall) -> Vec<Cell> {
    vec![
        Cell::text(&call.name),
        Cell::number(call.calls),
        Cell::number(call.errors).tone(Tone::Warn),
        Cell::number(call.restarts),
        Cell::time(call.wall_ns),
        Cell::time(call.cpu_ns),
        Cell::time(call.blocked_ns),
        Cell::time(call.runqueue_ns),
        Cell::time(call.preempted_ns),
        Cell::time_if(call.irq_ns),
        Cell::time_if(call.outside_ns),
        Cell::time_if(call.spin_ns),
        faults(call),
        Cell::bytes_if(call.read_bytes),
        Cell::bytes_if(call.write_bytes),
        Cell::time_if(call.p50_ns),
        Cell::time_if(call.p99_ns),
        Cell::time(call.max_ns),
    ]
}

/// Major faults are shown separately because each of them waited for storage.
fn faults(call: &Syscall) -> Cell {
    let Some(major) = call.faults_major.filter(|major| *major > 0) else {
        return Cell::number(call.faults_minor);
    };
    let (minor, major) = (units::count(call.faults_minor), units::count(major));
    Cell::text(format!("{minor}+{major}"))
}

/// A row that stands for several calls has no distribution of its own.
fn without_times(mut cells: Vec<Cell>) -> Vec<Cell> {
    let kept = cells.len() - 3;
    cells.truncate(kept);
    cells.extend([Cell::blank(), Cell::blank(), Cell::blank()]);
    cells
}

/// The budget as measured for whole threads. It equals the sum of the rows if nothing was lost.
fn total(report: &Report, calls: &[&Syscall]) -> Syscall {
    let totals = &report.totals;
    let all: Vec<&Syscall> = report.syscalls.iter().collect();
    let calls = sum(calls, "");
    Syscall {
        calls: calls.calls,
        errors: calls.errors,
        restarts: calls.restarts,
        wall_ns: totals.wall_ns,
        cpu_ns: totals.user_cpu_ns.saturating_add(totals.kernel_cpu_ns),
        blocked_ns: totals.blocked_ns,
        runqueue_ns: totals.runqueue_ns,
        preempted_ns: totals.preempted_ns,
        irq_ns: totals.irq_ns,
        outside_ns: totals.outside_ns,
        ..sum(&all, "total")
    }
}

fn sum(calls: &[&Syscall], name: &str) -> Syscall {
    let start = Syscall {
        name: name.to_string(),
        ..Syscall::default()
    };
    calls.iter().fold(start, |sum, call| Syscall {
        name: sum.name,
        calls: sum.calls + call.calls,
        errors: sum.errors + call.errors,
        restarts: sum.restarts + call.restarts,
        wall_ns: sum.wall_ns + call.wall_ns,
        cpu_ns: sum.cpu_ns + call.cpu_ns,
        blocked_ns: sum.blocked_ns + call.blocked_ns,
        runqueue_ns: sum.runqueue_ns + call.runqueue_ns,
        preempted_ns: sum.preempted_ns + call.preempted_ns,
        irq_ns: plus(sum.irq_ns, call.irq_ns),
        outside_ns: plus(sum.outside_ns, call.outside_ns),
        faults_minor: sum.faults_minor + call.faults_minor,
        faults_major: plus(sum.faults_major, call.faults_major),
        p50_ns: None,
        p99_ns: None,
        max_ns: sum.max_ns.max(call.max_ns),
        spin_ns: plus(sum.spin_ns, call.spin_ns),
        read_bytes: plus(sum.read_bytes, call.read_bytes),
        write_bytes: plus(sum.write_bytes, call.write_bytes),
    })
}

/// A sum counts as measured if one of its parts is.
fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
    }
}
