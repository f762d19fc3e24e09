//! Why threads slept: by label and call, by kernel site, and by place in the program.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use debox::report::{Report, Sleep, SleepCallSite, WaitersScope, Waker};
use debox::rest::{For, Waits};

use super::grid::{name, note, number, text, Cell, Grid};
use super::{heading, kernel_frame, shown, stack, TableOptions};
use crate::units;

const LABELS: usize = 10;
const SITES: usize = 15;
const CALL_SITES: usize = 10;
const WAKERS: usize = 2;
/// The class of waits that are no problem: printed last and quietly.
const IDLE: &str = "idle";

/// Whether nearly all of these sleeps are waits for work, by the rule that all reports share.
pub fn are_for_work(sleep: &Sleep) -> bool {
    let waits = Waits {
        label: &sleep.label,
        class: &sleep.class,
        count: sleep.count,
        open: 0,
        blocked_ns: sleep.blocked_ns,
        is_for_lock: Sleep::are_for_lock(&[sleep]),
        is_parked: sleep.parked_ns() > sleep.blocked_ns / 2,
    };
    waits.are_for() == For::Work
}

/// Prints which calls blocked on what, and how often: one line per label, with `call/count`.
pub fn print_labels(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.sleeps.is_empty() {
        return print_no_sleeps(out, report, options);
    }
    heading(out, "Why it slept", options)?;
    let mut labels: Vec<Label> = by_label(&report.sleeps).into_values().collect();
    labels.sort_by_key(|label| (label.class == IDLE, Reverse(label.blocked_ns)));

    let mut grid = Grid::new([
        name("label"),
        name("class"),
        number("sleeps"),
        number("time"),
        text("call/sleeps"),
    ]);
    let shown = shown(labels.len(), LABELS, options);
    for label in &labels[..shown] {
        let cells = [
            Cell::text(label.label),
            Cell::text(label.class),
            Cell::number(label.count),
            Cell::time(label.blocked_ns),
            Cell::text(label.calls()),
        ];
        if label.class == IDLE {
            grid.quiet_row(cells);
        } else {
            grid.row(cells);
        }
    }
    let rest = &labels[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more labels", rest.len())),
            Cell::blank(),
            Cell::number(rest.iter().map(|label| label.count).sum()),
            Cell::time(rest.iter().map(|label| label.blocked_ns).sum()),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

/// Prints each site: how long, woken by whom, and how many waited.
pub fn print_sites(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.sleeps.is_empty() {
        return Ok(());
    }
    heading(
        out,
        "Where in the kernel it slept, and who ended it",
        options,
    )?;
    let mut sleeps: Vec<&Sleep> = report.sleeps.iter().collect();
    sleeps.sort_by_key(|sleep| (sleep.class == IDLE, Reverse(sleep.blocked_ns)));

    let mut grid = Grid::new([
        name("label"),
        name("class").gives_way(1),
        name("call"),
        number("sleeps"),
        number("time"),
        number("longest"),
        name("waiters").when_used(),
        text("site"),
        text("woken by"),
    ]);
    let shown = shown(sleeps.len(), SITES, options);
    for sleep in &sleeps[..shown] {
        let cells = [
            Cell::text(&sleep.label),
            Cell::text(&sleep.class),
            Cell::text(&sleep.syscall),
            Cell::number(sleep.count),
            Cell::time(sleep.blocked_ns),
            Cell::time(sleep.max_ns),
            waiters(sleep),
            Cell::text(kernel_frame(&sleep.site, options).to_string()),
            Cell::text(wakers(&sleep.wakers, options)),
        ];
        if sleep.class == IDLE {
            grid.quiet_row(cells);
        } else {
            grid.row(cells);
        }
    }
    let rest = &sleeps[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more", rest.len())),
            Cell::blank(),
            Cell::blank(),
            Cell::number(rest.iter().map(|sleep| sleep.count).sum()),
            Cell::time(rest.iter().map(|sleep| sleep.blocked_ns).sum()),
            Cell::time(rest.iter().map(|sleep| sleep.max_ns).max().unwrap_or(0)),
            Cell::blank(),
            Cell::blank(),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)?;
    explain_waiters(out, &sleeps[..shown], options)
}

/// Prints where in the program the sleeping calls were made.
pub fn print_call_sites(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    let mut sites: Vec<(&Sleep, &SleepCallSite)> = report
        .sleeps
        .iter()
        .flat_map(|sleep| sleep.call_sites.iter().map(move |site| (sleep, site)))
        .collect();
    if sites.is_empty() {
        return Ok(());
    }
    heading(out, "From where it slept", options)?;
    sites.sort_by_key(|(sleep, site)| (sleep.class == IDLE, Reverse(site.blocked_ns)));

    let mut grid = Grid::new([
        name("call"),
        name("label"),
        number("sleeps"),
        number("time"),
        text("from"),
    ]);
    let shown = shown(sites.len(), CALL_SITES, options);
    for (sleep, site) in &sites[..shown] {
        let cells = [
            Cell::text(&sleep.syscall),
            Cell::text(&sleep.label),
            Cell::number(site.count),
            Cell::time(site.blocked_ns),
            Cell::text(stack(&site.frames, site.caller.as_ref(), options)),
        ];
        if sleep.class == IDLE {
            grid.quiet_row(cells);
        } else {
            grid.row(cells);
        }
    }
    let rest = &sites[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more", rest.len())),
            Cell::blank(),
            Cell::number(rest.iter().map(|(_, site)| site.count).sum()),
            Cell::time(rest.iter().map(|(_, site)| site.blocked_ns).sum()),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

/// An empty list can mean that no call slept, or that sleeps were not measured.
fn print_no_sleeps(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.totals.blocked_ns == 0 {
        return Ok(());
    }
    heading(out, "Why it slept", options)?;
    if report.detail.iter().any(|detail| detail == "sleeps") {
        writeln!(out, "  no site was recorded")
    } else {
        writeln!(out, "  not measured (use --detail sleeps)")
    }
}

/// The sleeps under one label.
struct Label<'a> {
    label: &'a str,
    class: &'a str,
    count: u64,
    blocked_ns: u64,
    by_call: BTreeMap<&'a str, u64>,
}

impl Label<'_> {
    /// `open/162, read/3`, most often first.
    fn calls(&self) -> String {
        let mut calls: Vec<_> = self.by_call.iter().collect();
        calls.sort_by_key(|(_, count)| Reverse(**count));
        let calls: Vec<_> = calls
            .iter()
            .map(|(call, count)| format!("{call}/{}", units::count(**count)))
            .collect();
        calls.join(", ")
    }
}

fn by_label(sleeps: &[Sleep]) -> BTreeMap<(&str, &str), Label<'_>> {
    let mut labels = BTreeMap::new();
    for sleep in sleeps {
        let (label, class) = (sleep.label.as_str(), sleep.class.as_str());
        let entry = labels.entry((label, class)).or_insert_with(|| Label {
            label,
            class,
            count: 0,
            blocked_ns: 0,
            by_call: BTreeMap::new(),
        });
        entry.count += sleep.count;
        entry.blocked_ns += sleep.blocked_ns;
        *entry.by_call.entry(&sleep.syscall).or_default() += sleep.count;
    }
    labels
}

/// `comm/tid×N, softirq×N`.
fn wakers(wakers: &[Waker], options: &TableOptions) -> String {
    let mut wakers: Vec<&Waker> = wakers.iter().collect();
    wakers.sort_by_key(|waker| Reverse(waker.count));
    let shown = shown(wakers.len(), WAKERS, options);
    let mut names: Vec<String> = wakers[..shown].iter().map(|waker| who(waker)).collect();
    if shown < wakers.len() {
        names.push(format!("{} more", wakers.len() - shown));
    }
    names.join(", ")
}

fn who(waker: &Waker) -> String {
    let count = units::count(waker.count);
    match (&waker.comm, waker.tid) {
        (Some(comm), Some(tid)) => format!("{comm}/{tid}×{count}"),
        (Some(comm), None) => format!("{comm}×{count}"),
        (None, Some(tid)) => format!("{}/{tid}×{count}", waker.kind),
        (None, None) => format!("{}×{count}", waker.kind),
    }
}

/// `4 / 3`: number of waiters at entry and at exit, if the sleeper was not alone.
fn waiters(sleep: &Sleep) -> Cell {
    if !was_contended(sleep) {
        return Cell::blank();
    }
    let show = |waiters: Option<u64>| waiters.map_or("-".to_string(), units::count);
    let scope = if is_partial(sleep) { "*" } else { "" };
    let (entry, exit) = (show(sleep.waiters_entry_max), show(sleep.waiters_exit_max));
    Cell::text(format!("{entry} / {exit}{scope}"))
}

fn was_contended(sleep: &Sleep) -> bool {
    sleep.waiters_entry_max.is_some_and(|waiters| waiters > 1)
        || sleep.waiters_exit_max.is_some_and(|waiters| waiters > 0)
}

fn is_partial(sleep: &Sleep) -> bool {
    sleep.waiters_scope == Some(WaitersScope::Monitored)
}

fn explain_waiters(
    out: &mut impl Write,
    sleeps: &[&Sleep],
    options: &TableOptions,
) -> io::Result<()> {
    if !sleeps.iter().any(|sleep| was_contended(sleep)) {
        return Ok(());
    }
    let partial = sleeps
        .iter()
        .any(|sleep| was_contended(sleep) && is_partial(sleep));
    let scope = if partial {
        " (* among the watched threads)"
    } else {
        ""
    };
    let text =
        format!("waiters: most at a sleep's start, itself included / left at its end{scope}");
    note(out, &text, options)
}
