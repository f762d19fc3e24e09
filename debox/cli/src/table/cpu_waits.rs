//! Who had the CPU that threads waited for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use debox::report::{CpuWait, CpuWaitKind, CpuWaitPart, Report};

use super::grid::{number, text, Cell, Grid, Tone};
use super::{heading, shown, TableOptions};
use crate::units;

const ROWS: usize = 8;
/// The smallest part of the threads' lifetime for which the table is printed.
const LEAST: f64 = 0.01;

/// Calls whose rows would read the same.
#[derive(Default)]
struct Row {
    ns: u64,
    woken_ns: u64,
    turns: u64,
    max_ns: u64,
    cpus_allowed: Option<u32>,
}

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    rows(out, &report.cpu_waits, report.totals.wall_ns, options)
}

/// `wall_ns`: sum of the threads' lifetimes.
pub fn rows(
    out: &mut impl Write,
    waits: &[CpuWait],
    wall_ns: u64,
    options: &TableOptions,
) -> io::Result<()> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut all = 0u64;
    for wait in waits {
        let row = rows.entry(describe(wait)).or_default();
        row.ns = row.ns.saturating_add(wait.ns);
        if wait.part == Some(CpuWaitPart::Runqueue) {
            row.woken_ns = row.woken_ns.saturating_add(wait.ns);
        }
        row.turns = row.turns.saturating_add(wait.turns);
        row.max_ns = row.max_ns.max(wait.max_ns);
        let both = row.cpus_allowed.into_iter().chain(wait.cpus_allowed);
        row.cpus_allowed = both.min();
        all = all.saturating_add(wait.ns);
    }
    let is_much = all as f64 >= wall_ns as f64 * LEAST;
    if rows.is_empty() || (!is_much && !options.all) {
        return Ok(());
    }
    heading(out, "Who had the CPU while threads waited for one", options)?;
    let mut grid = Grid::new([
        text("who"),
        number("time"),
        number("after waking").when_used(),
        number("turns").when_used().gives_way(2),
        number("longest").when_used().gives_way(1),
        number("CPUs allowed").when_used().gives_way(3),
    ]);
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| Reverse(row.ns));
    let shown = shown(rows.len(), ROWS, options);
    for (who, row) in &rows[..shown] {
        // Of further processes only the sum is kept.
        let (turns, longest) = match row.turns {
            0 => (Cell::blank(), Cell::blank()),
            turns => (Cell::number(turns), Cell::time(row.max_ns)),
        };
        grid.row([
            Cell::text(who),
            Cell::time(row.ns),
            Cell::time(row.woken_ns),
            turns,
            longest,
            row.cpus_allowed
                .map_or_else(Cell::blank, |cpus| Cell::number(u64::from(cpus))),
        ]);
    }
    let rest = &rows[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more", rest.len())).tone(Tone::Quiet),
            Cell::time(rest.iter().map(|(_, row)| row.ns).sum()),
            Cell::time(rest.iter().map(|(_, row)| row.woken_ns).sum()),
            Cell::blank(),
            Cell::blank(),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

fn describe(wait: &CpuWait) -> String {
    let process = || {
        let comm = wait.comm.as_deref().unwrap_or("?");
        let pid = wait.pid.unwrap_or(0);
        let class = if wait.is_real_time { ", real time" } else { "" };
        format!("{comm} ({pid}{class})")
    };
    match wait.kind {
        CpuWaitKind::Task if wait.is_own => format!("{}, one of those monitored", process()),
        CpuWaitKind::Task => process(),
        CpuWaitKind::Kernel => format!("{} of the kernel", process()),
        CpuWaitKind::Quota => quota(wait),
        CpuWaitKind::Idle => "no task: the CPU was idle".to_string(),
        CpuWaitKind::Many => "further processes".to_string(),
        CpuWaitKind::Stolen => "no task: the hypervisor had the CPU".to_string(),
        CpuWaitKind::Hidden => "a task of another user".to_string(),
        CpuWaitKind::Untold => "not seen to end".to_string(),
        CpuWaitKind::Unknown => "not known".to_string(),
    }
}

fn quota(wait: &CpuWait) -> String {
    let group = match &wait.group {
        Some(group) => format!("control group {group}"),
        None => "the control group".to_string(),
    };
    match (wait.quota_ns, wait.period_ns) {
        (Some(quota), Some(period)) => format!(
            "no task: {group} had used up its quota of {} in {}",
            units::time(quota),
            units::time(period)
        ),
        _ => format!("no task: {group} had used up its quota"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample;

    #[test]
    fn owners_are_added_up_and_the_longest_is_first() {
        let report = Report {
            cpu_waits: sample::cpu_waits(),
            ..sample::empty()
        };
        let options = TableOptions {
            color: false,
            width: 140,
            all: false,
        };
        let mut out = Vec::new();
        print(&mut out, &report, &options).expect("memory takes everything");
        let shown = String::from_utf8(out).expect("text");
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .skip(3)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[0],
            ["hog", "(7)", "500ms", "100ms", "6", "200ms", "1"],
            "{shown}"
        );
        assert!(
            shown.contains("control group limited had used up its quota"),
            "{shown}"
        );
        assert!(shown.contains("20.0 ms in 100 ms"), "{shown}");
        assert!(shown.contains("not seen to end"), "{shown}");
    }
}
