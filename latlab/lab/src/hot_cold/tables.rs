//! The results as tables.

use std::io::{self, Write};

use kit_console::printable;
use kit_console::table::Grid;
use latlab::units::{bytes, count, time};
use latlab_analysis::text::note;

use super::result::{AtLevel, Figures, Measured, Result};
use crate::procedure::Spread;

pub fn text(out: &mut dyn Write, found: &Result, width: usize) -> io::Result<()> {
    let terms = &found.terms;
    let intro = format!(
        "Hot requests, {:.0}/s, are for {} files of {} in memory. Cold requests are for files of {} whose names have not \
         been looked up since the disk was mounted, {:.0} % of them for names that do not exist. The disk takes {} for each \
         read, {} at once: it looks up and reads {:.0} cold names per second ({:.1} reads each), which is 100 %.",
        terms.hot_rps,
        count(u64::from(terms.hot_files)),
        bytes(terms.hot_file_bytes),
        bytes(terms.cold_file_bytes),
        100.0 * terms.missing,
        time(terms.service_us as i64 * 1000),
        terms.depth,
        terms.disk_names_per_second,
        terms.disk_reads_per_name
    );
    note(out, &intro, width)?;
    let repeats = format!(
        "{} CPUs, Linux {}. {} runs of {:.0} s at each level, servers in turn; medians of the runs, in brackets the least \
         and the greatest (of a single run: the 95 % interval). Latency is from when a request was due; failed requests \
         count as slower than all others.",
        found.machine.cpus, found.machine.kernel, terms.repeats, terms.seconds
    );
    note(out, &repeats, width)?;
    for caveat in &found.caveats {
        note(out, caveat, width)?;
    }
    writeln!(
        out,
        "\nAll servers: hot requests without cold ones, and with the most of them"
    )?;
    overview(out, found, width)?;
    for server in &found.servers {
        writeln!(
            out,
            "\n{} ({})",
            printable(&server.name),
            printable(&server.about)
        )?;
        of_server(out, server, width)?;
    }
    Ok(())
}

fn overview(out: &mut dyn Write, found: &Result, width: usize) -> io::Result<()> {
    let columns = [
        "server",
        ">p50 at 0 %",
        ">p99 at 0 %",
        ">p50",
        ">p99",
        ">p99 ratio",
        ">cold p50",
        ">cold p99",
    ];
    let mut grid = Grid::with_least(&columns, width, 15);
    for server in &found.servers {
        let (Some(first), Some(last)) = (server.levels.first(), server.levels.last()) else {
            continue;
        };
        grid.row([
            server.name.clone(),
            short(first.hot.p50_ns),
            short(first.hot.p99_ns),
            short(last.hot.p50_ns),
            short(last.hot.p99_ns),
            ratio(last.hot_ratio.p99),
            short(last.cold.p50_ns),
            short(last.cold.p99_ns),
        ]);
    }
    grid.print(out)
}

fn of_server(out: &mut dyn Write, server: &Measured, width: usize) -> io::Result<()> {
    let columns = [
        ">cold",
        ">cold/s",
        ">hot p50",
        ">hot p99",
        ">hot p99.9",
        ">p99 ratio",
        ">cold p50",
        ">cold p99",
        ">missing p50",
        ">failed",
        ">late",
    ];
    let mut grid = Grid::with_least(&columns, width, 6);
    for level in server.levels.iter().filter(|level| !level.runs.is_empty()) {
        let bad = level.runs.iter().any(|run| run.troubles().is_some());
        let late = level
            .runs
            .iter()
            .map(|run| run.summary.lateness.p99_ns)
            .max();
        grid.row([
            format!(
                "{:.0} %{}",
                100.0 * level.level,
                if bad { " (not valid)" } else { "" }
            ),
            count(level.cold_rps.round() as u64),
            bounded(
                level,
                |level| &level.hot,
                |run| (run.hot.p50_ns.low, run.hot.p50_ns.high),
                |f| f.p50_ns,
            ),
            bounded(
                level,
                |level| &level.hot,
                |run| (run.hot.p99_ns.low, run.hot.p99_ns.high),
                |f| f.p99_ns,
            ),
            bounded(
                level,
                |level| &level.hot,
                |run| (run.hot.p999_ns.low, run.hot.p999_ns.high),
                |f| f.p999_ns,
            ),
            ratio(level.hot_ratio.p99),
            short(level.cold.p50_ns),
            short(level.cold.p99_ns),
            short(level.missing.p50_ns),
            count(level.hot.failed + level.cold.failed + level.missing.failed),
            time(late.unwrap_or(0)),
        ]);
    }
    grid.print(out)?;
    let reads = server
        .levels
        .iter()
        .rev()
        .find_map(|level| level.disk_reads_per_name);
    if let Some(reads) = reads {
        note(
            out,
            &format!(
                "The disk was read {:.1} times for each cold name at the highest level.",
                reads.median
            ),
            width,
        )?;
    }
    Ok(())
}

/// The median, and the ends of the repeats; the interval within the run if there is one run.
fn bounded(
    level: &AtLevel,
    of: fn(&AtLevel) -> &Figures,
    interval: fn(&super::result::OneRun) -> (Option<f64>, Option<f64>),
    figure: fn(&Figures) -> Option<Spread>,
) -> String {
    let Some(spread) = figure(of(level)) else {
        return short(None);
    };
    let (low, high) = match level.runs.as_slice() {
        [one] => interval(one),
        _ => (Some(spread.least), Some(spread.greatest)),
    };
    let end = |ns: Option<f64>| ns.map_or("?".to_string(), |ns| time(ns as i64).replace(' ', ""));
    format!("{} [{} {}]", short(Some(spread)), end(low), end(high))
}

fn short(spread: Option<Spread>) -> String {
    spread.map_or("-".to_string(), |spread| {
        time(spread.median as i64).replace(' ', "")
    })
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or("-".to_string(), |spread| format!("{:.2}", spread.median))
}
