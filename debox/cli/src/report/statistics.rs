// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox report --calls`: the statistics of each call.

use std::io::{self, Write};

use debox_report::Report;

use crate::table::grid::{name, number, Cell, Grid};
use crate::table::{heading, TableOptions};

/// Each call's statistics, those with the most time first.
pub fn statistics(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    heading(out, "Statistics of each call", options)?;
    let mut grid = Grid::new([
        name("call"),
        number("calls"),
        number("total"),
        number("shortest"),
        number("mean"),
        number("longest"),
        number("deviation"),
        number("median").gives_way(2),
        number("90%").gives_way(3),
        number("99%").gives_way(1),
        number("99.9%").gives_way(4),
    ]);
    let mut rows: Vec<_> = report.calls.iter().collect();
    rows.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
    for call in rows {
        grid.row([
            Cell::text(&call.name),
            Cell::number(call.count),
            Cell::time(call.total_ns),
            Cell::time(call.min_ns),
            Cell::time(call.mean_ns),
            Cell::time(call.max_ns),
            Cell::time(call.deviation_ns),
            Cell::time(call.median_ns),
            Cell::time(call.p90_ns),
            Cell::time(call.p99_ns),
            Cell::time(call.p999_ns),
        ]);
    }
    grid.print(out, options)
}
