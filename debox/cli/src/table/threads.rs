//! The threads and their processes, and the calls that are still in flight.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use debox::frame::Frame;
use debox::report::{Report, Thread, Totals};

use super::grid::{name, number, text, Cell, Grid};
use super::owners;
use super::processes::CommandLines;
use super::{heading, kernel_frame, label_and_class, shown, stack, TableOptions};
use crate::units;

const THREADS: usize = 15;
const IN_FLIGHT: usize = 20;
/// Fewer threads of the same name than this are listed one by one.
const GROUP_MIN: usize = 4;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    if report.threads.is_empty() {
        return Ok(());
    }
    heading(out, "Which process and thread", options)?;
    let mut rows = rows(report, options);
    rows.sort_by_key(|row| (Reverse(row.awake_ns()), Reverse(row.totals.wall_ns)));

    let mut grid = Grid::new([
        number("pid").when_used(),
        number("tid").when_used(),
        name("name"),
        number("calls").gives_way(2),
        number("wall").gives_way(1),
        number("user CPU"),
        number("kernel CPU"),
        number("asleep"),
        number("waiting"),
        number("interrupts").when_used(),
        number("outside").when_used(),
        text("command line").when_used(),
    ]);
    let threads = report.threads.iter();
    let threads = threads.map(|thread| (thread.pid, thread.comm.as_str()));
    let lines = CommandLines::of(&report.processes, threads);
    let cells = |row: &Row| {
        let line = lines.cell(row.ids.map(|(pid, _)| pid), options);
        row.cells().into_iter().chain([line]).collect::<Vec<_>>()
    };
    let shown = shown(rows.len(), THREADS, options);
    for row in &rows[..shown] {
        grid.row(cells(row));
    }
    if shown < rows.len() {
        let mut more = Row::default();
        for row in &rows[shown..] {
            more.add(row);
        }
        more.name = format!("… {} more", units::count(more.threads as u64));
        grid.quiet_row(cells(&more));
    }
    grid.print(out, options)
}

/// Calls that had not returned: for a process that hangs, they are the answer.
pub fn print_in_flight(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.in_flight.is_empty() {
        return Ok(());
    }
    heading(out, "Still running when the report was made", options)?;
    let mut calls: Vec<_> = report.in_flight.iter().collect();
    calls.sort_by_key(|call| (call.class == "idle", Reverse(call.for_ns)));
    let mut grid = Grid::new([
        number("pid"),
        number("tid"),
        name("name"),
        name("call"),
        number("for"),
        name("now"),
        text("waits for").when_used(),
        text("kernel stack").when_used(),
    ]);
    let shown = shown(calls.len(), IN_FLIGHT, options);
    for call in &calls[..shown] {
        let at_least = if call.at_least { "≥" } else { "" };
        let frames = call.frames.iter();
        let frames: Vec<Frame> = frames.map(|frame| kernel_frame(frame, options)).collect();
        let cells = [
            Cell::id(call.pid),
            Cell::id(call.tid),
            Cell::text(&call.comm),
            Cell::text(&call.syscall),
            Cell::text(format!(
                "{at_least}{}",
                units::time(call.for_ns).replace(' ', "")
            )),
            Cell::text(label_and_class(&call.label, &call.class)),
            match owners::held_resource(call) {
                Some(text) => Cell::text(text),
                None => Cell::blank(),
            },
            if frames.is_empty() {
                Cell::blank()
            } else {
                Cell::text(stack(&frames, None, options))
            },
        ];
        if call.class == "idle" {
            grid.quiet_row(cells);
        } else {
            grid.row(cells);
        }
    }
    grid.print(out, options)?;
    if shown < calls.len() {
        writeln!(
            out,
            "  … {} more",
            units::count((calls.len() - shown) as u64)
        )?;
    }
    Ok(())
}

/// One line of the table: a thread, or several of the same name.
#[derive(Default)]
struct Row {
    /// Process and thread number, if the row is one thread.
    ids: Option<(u32, u32)>,
    name: String,
    threads: usize,
    calls: u64,
    totals: Totals,
}

impl Row {
    fn new(thread: &Thread) -> Self {
        Self {
            ids: Some((thread.pid, thread.tid)),
            name: thread.comm.clone(),
            threads: 1,
            calls: thread.calls,
            totals: thread.totals.clone(),
        }
    }

    fn add(&mut self, other: &Row) {
        let (sum, part) = (&mut self.totals, &other.totals);
        sum.wall_ns += part.wall_ns;
        sum.user_cpu_ns += part.user_cpu_ns;
        sum.kernel_cpu_ns += part.kernel_cpu_ns;
        sum.blocked_ns += part.blocked_ns;
        sum.runqueue_ns += part.runqueue_ns;
        sum.preempted_ns += part.preempted_ns;
        let plus = |sum: Option<u64>, part: Option<u64>| {
            part.map_or(sum, |part| Some(sum.unwrap_or(0) + part))
        };
        sum.irq_ns = plus(sum.irq_ns, part.irq_ns);
        sum.outside_ns = plus(sum.outside_ns, part.outside_ns);
        self.threads += other.threads;
        self.calls += other.calls;
    }

    /// Time in which a thread ran or wanted to run. Sleep does not count, since most of it is idle.
    fn awake_ns(&self) -> u64 {
        let totals = &self.totals;
        totals.wall_ns.saturating_sub(totals.blocked_ns)
    }

    fn cells(&self) -> [Cell; 11] {
        let totals = &self.totals;
        let id = |id: Option<u32>| id.map_or_else(Cell::blank, Cell::id);
        [
            id(self.ids.map(|(pid, _)| pid)),
            id(self.ids.map(|(_, tid)| tid)),
            Cell::text(&self.name),
            Cell::number(self.calls),
            Cell::time(totals.wall_ns),
            Cell::time(totals.user_cpu_ns),
            Cell::time(totals.kernel_cpu_ns),
            Cell::time(totals.blocked_ns),
            Cell::time(totals.runqueue_ns.saturating_add(totals.preempted_ns)),
            Cell::time_if(totals.irq_ns),
            Cell::time_if(totals.outside_ns),
        ]
    }
}

/// The threads one by one. If there are too many, short-lived threads of the same name share a row:
/// the hundred `sh` of a build are one fact, but the workers of a server are several.
fn rows(report: &Report, options: &TableOptions) -> Vec<Row> {
    let threads = &report.threads;
    if shown(threads.len(), THREADS, options) == threads.len() {
        return threads.iter().map(Row::new).collect();
    }
    let mut rows = Vec::new();
    let mut short_lived: BTreeMap<&str, Vec<&Thread>> = BTreeMap::new();
    for thread in threads {
        if thread.totals.wall_ns < report.duration_ns / 2 {
            short_lived.entry(&thread.comm).or_default().push(thread);
        } else {
            rows.push(Row::new(thread));
        }
    }
    for (comm, threads) in short_lived {
        if threads.len() < GROUP_MIN {
            rows.extend(threads.into_iter().map(Row::new));
            continue;
        }
        let mut group = Row::default();
        for thread in threads {
            group.add(&Row::new(thread));
        }
        group.name = format!("{comm} ×{}", units::count(group.threads as u64));
        rows.push(group);
    }
    rows
}
