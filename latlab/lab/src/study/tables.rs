//! A study as tables, for a terminal and as Markdown, with the same content.

use std::io::{self, Write};

use kit_console::printable;
use kit_console::table::Grid;
use latlab::units::{bytes, count, time};
use latlab_analysis::report::RunReport;
use latlab_analysis::text::note;

use super::result::{not_valid, AtLoad, Result, Studied};
use crate::procedure::Spread;

/// Causes in a table, at most.
const CAUSES: usize = 6;

enum Part {
    Heading(String),
    Sentence(String),
    /// Columns whose name begins with `>` contain numbers.
    Table(Vec<String>, Vec<Vec<String>>),
}

pub fn text(out: &mut dyn Write, found: &Result, width: usize) -> io::Result<()> {
    for part in parts(found) {
        match part {
            Part::Heading(text) => writeln!(out, "\n{}", printable(&text))?,
            Part::Sentence(text) => note(out, &text, width)?,
            Part::Table(columns, rows) => {
                let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
                let first = rows.iter().filter_map(|row| row.first());
                let least = first.map(|cell| cell.chars().count()).max();
                let least = least.unwrap_or(0).clamp(6, 24) as u16 + 3;
                let mut grid = Grid::with_least(&columns, width, least);
                rows.into_iter().for_each(|row| grid.row(row));
                grid.print(out)?;
            }
        }
    }
    Ok(())
}

pub fn markdown(found: &Result) -> String {
    let mut text = String::new();
    let mut in_list = false;
    for part in parts(found) {
        let is_item = matches!(part, Part::Sentence(_));
        if in_list && !is_item {
            text.push('\n');
        }
        in_list = is_item;
        match part {
            Part::Heading(heading) => text.push_str(&format!("### {}\n\n", printable(&heading))),
            Part::Sentence(sentence) => text.push_str(&format!("- {}\n", printable(&sentence))),
            Part::Table(columns, rows) => {
                let line = |cells: &[String]| {
                    let cells: Vec<String> = cells
                        .iter()
                        .map(|cell| printable(cell).replace('|', "\\|"))
                        .collect();
                    format!("| {} |\n", cells.join(" | "))
                };
                let names: Vec<String> = columns
                    .iter()
                    .map(|name| name.trim_start_matches('>').to_string())
                    .collect();
                let sides: Vec<String> = columns
                    .iter()
                    .map(|name| if name.starts_with('>') { "---:" } else { "---" }.to_string())
                    .collect();
                text.push_str(&line(&names));
                text.push_str(&line(&sides));
                rows.iter().for_each(|row| text.push_str(&line(row)));
                text.push('\n');
            }
        }
    }
    text.trim_end().to_string() + "\n"
}

fn table(columns: &[&str], rows: Vec<Vec<String>>) -> Part {
    Part::Table(columns.iter().map(|name| name.to_string()).collect(), rows)
}

fn parts(found: &Result) -> Vec<Part> {
    let (machine, terms) = (&found.machine, &found.terms);
    let mut parts = vec![
        Part::Heading("What was measured".to_string()),
        Part::Sentence(format!(
            "{} CPUs, Linux {}; {} of files, {} of memory for each server; a disk that takes {} for a request, \
             {} at once: a cold open takes {}, a cold read of 4 KiB {}.",
            machine.cpus,
            machine.kernel,
            bytes(terms.file_set_bytes),
            bytes(terms.memory_bytes),
            time(terms.service_us as i64 * 1000),
            terms.depth,
            time(terms.cold_open_ns as i64),
            time(terms.cold_read_ns as i64)
        )),
        Part::Sentence(format!(
            "{} connections to find the capacity, up to {} at each load; each {} times, {:.0} s; medians of the repeats. Latency is from when a \
             request was due to its last byte.",
            terms.connections, terms.most_connections, terms.repeats, terms.seconds
        )),
    ];
    let caveats = found.caveats.iter();
    parts.extend(caveats.map(|text| Part::Sentence(text.clone())));
    parts.push(Part::Heading("Findings".to_string()));
    let findings = found.findings.iter();
    parts.extend(findings.map(|finding| Part::Sentence(finding.text.clone())));
    parts.push(Part::Heading("Servers".to_string()));
    parts.push(overview(&found.servers));
    let marked = |server: &Studied| not_valid(server.all_runs()) > 0;
    if found.servers.iter().any(marked) {
        parts.push(Part::Sentence(MARK_MEANS.to_string()));
    }
    for server in &found.servers {
        of_server(server, &mut parts);
    }
    parts
}

fn of_spread(spread: Option<Spread>) -> String {
    spread.map_or(String::new(), |spread| time(spread.median as i64))
}

fn inversion(spread: Option<Spread>) -> String {
    spread.map_or(String::new(), |spread| format!("{:.2}", spread.median))
}

/// Appended to figures that come from runs of which some are not valid.
const NOT_VALID: &str = " (not valid)";
/// The same for narrow tables.
const MARK: &str = " (!)";
const MARK_MEANS: &str = "(!): of runs of which some are not valid.";

/// The interval of the capacity, or the throughput of closed loops.
fn capacity(server: &Studied) -> String {
    let rate = |rps: f64| count(rps.round() as u64);
    let interval = server.capacity.interval;
    match (interval.served_rps, interval.not_served_rps) {
        (Some(served), Some(not)) => format!("{} to {}", rate(served), rate(not)),
        (Some(served), None) => format!("over {}", rate(served)),
        (None, Some(not)) => format!("below {}", rate(not)),
        (None, None) => rate(server.capacity.rps.median),
    }
}

/// One row per server: what the papers compare.
fn overview(servers: &[Studied]) -> Part {
    let columns = [
        "server",
        ">capacity/s",
        ">loads",
        ">median",
        ">mean",
        ">95 %",
        ">inversion",
        ">events at once",
        "slow because of",
    ];
    let rows = servers.iter().map(|server| {
        let ends = server.ends();
        let times = |of: fn(&AtLoad) -> Option<Spread>| {
            let (first, last) = ends?;
            let (first, last) = (of(first)?.median, of(last)?.median);
            Some(format!("× {:.1}", last / first.max(1.0)))
        };
        let both = |of: fn(&AtLoad) -> String| {
            ends.map_or(String::new(), |(first, last)| {
                format!("{} to {}", of(first), of(last))
            })
        };
        let ready = server
            .recorded_run()
            .and_then(|run| run.server.as_ref()?.burstiness.ready.as_ref());
        let mark = |not_valid: usize| if not_valid > 0 { MARK } else { "" };
        let of_ends = ends.map_or(0, |(first, last)| {
            not_valid(first.at.runs.iter().chain(&last.at.runs))
        });
        vec![
            server.name.clone(),
            format!(
                "{}{}",
                capacity(server),
                mark(not_valid(server.capacity.all_runs()))
            ),
            both(|load| load.at.load.to_string()) + mark(of_ends),
            times(|load| load.at.figures.p50_ns).unwrap_or_default(),
            times(|load| load.at.figures.mean_ns).unwrap_or_default(),
            times(|load| load.at.figures.p95_ns).unwrap_or_default(),
            both(|load| inversion(load.inversion)),
            ready.map_or(String::new(), |ready| format!("{:.1}", ready.mean)),
            server.reason().map_or(String::new(), |reason| {
                reason + mark(not_valid(&server.recording))
            }),
        ]
    });
    table(&columns, rows.collect())
}

fn of_server(server: &Studied, parts: &mut Vec<Part>) {
    parts.push(Part::Heading(format!("{} ({})", server.name, server.about)));
    parts.push(Part::Sentence(format!(
        "Capacity: {}; closed loops get {}, {}/s. The disk was read {:.1} times for each 1,000 requests.",
        server.capacity.describe(),
        server.capacity.describe_closed(),
        bytes(server.capacity.bytes_per_second.median as u64),
        server.disk_reads_per_1000
    )));
    let columns = [
        ">load",
        ">offered/s",
        ">served/s",
        ">median",
        ">mean",
        ">95 %",
        ">99 %",
        ">inversion",
        ">ideal",
        ">failed",
    ];
    let rows = server.loads.iter().map(|load| {
        let figures = &load.at.figures;
        let refused = not_valid(&load.at.runs) > 0;
        let served = figures.throughput_rps.map_or(0.0, |spread| spread.median);
        vec![
            format!("{}{}", load.at.load, if refused { NOT_VALID } else { "" }),
            count(load.at.offered_rps.round() as u64),
            count(served.round() as u64),
            of_spread(figures.p50_ns),
            of_spread(figures.mean_ns),
            of_spread(figures.p95_ns),
            of_spread(figures.p99_ns),
            inversion(load.inversion),
            inversion(load.ideal_inversion),
            count(figures.errors),
        ]
    });
    parts.push(table(&columns, rows.collect()));
    let below = |run: &&RunReport| run.load.is_some_and(|load| load < 1.0);
    if let Some(run) = server.analysis.all().filter(below).last() {
        deciles(run, parts);
    }
    if let Some(run) = server.recorded_run() {
        reasons(run, parts);
    }
}

/// Table 3.2 and Figures 3.10 and 3.11.
fn deciles(run: &RunReport, parts: &mut Vec<Part>) {
    if run.deciles.is_empty() {
        return;
    }
    parts.push(Part::Sentence(format!(
        "Sizes by tenth of the requests at load {}, the fastest first:",
        run.load.unwrap_or(0.0)
    )));
    let mut columns = vec![">tenth".to_string(), ">up to".to_string()];
    columns.extend(
        run.series
            .iter()
            .map(|one| format!(">{} to {}", bytes(one.size_min), bytes(one.size_max))),
    );
    columns.push(">mean size".to_string());
    let rows = run
        .deciles
        .iter()
        .filter(|one| one.requests > 0)
        .map(|one| {
            let up_to = one
                .latency_max
                .map_or(String::new(), |ns| time(ns.0 as i64));
            let mut row = vec![one.decile.to_string(), up_to];
            row.extend(
                one.series
                    .iter()
                    .map(|part| format!("{:.0} %", 100.0 * part)),
            );
            row.push(bytes(one.size_mean as u64));
            row
        });
    parts.push(Part::Table(columns, rows.collect()));
}

/// What DeBox recorded.
fn reasons(run: &RunReport, parts: &mut Vec<Part>) {
    let Some(server) = &run.server else { return };
    parts.push(Part::Sentence(format!(
        "Recorded by DeBox at load {}, of {} requests (half of them {} at most); recording costs time, so that \
         this is for the reasons alone.",
        run.load.unwrap_or(0.0),
        count(run.requests),
        time(run.percentiles.p50.0 as i64)
    )));
    if let Some(ready) = &server.burstiness.ready {
        parts.push(Part::Sentence(format!(
            "Events at once: {:.1} on average, median {}, 95 % {}, most {}; more than 100 in {:.1} % of the calls.",
            ready.mean,
            ready.median,
            ready.p95,
            ready.max,
            100.0 * ready.over_100
        )));
    }
    match (&server.burstiness.runnable, &server.burstiness.no_runnable) {
        (Some(runnable), _) => parts.push(Part::Sentence(format!(
            "Runnable threads: {:.2} of {} on average; none {:.1} % of the time, more than 80 % of them {:.1} % of \
             it.",
            runnable.mean,
            runnable.threads,
            100.0 * runnable.none,
            100.0 * runnable.over_80_percent
        ))),
        (None, Some(why)) => parts.push(Part::Sentence(format!(
            "Runnable threads: not known, because {why}."
        ))),
        (None, None) => {}
    }
    let Some(found) = &server.causes else {
        let why = server.no_causes.as_deref().unwrap_or("there are none");
        parts.push(Part::Sentence(format!("Causes: not known, because {why}.")));
        return;
    };
    parts.push(Part::Sentence(format!(
        "What its threads waited for, or computed, in the {} requests slower than {} % ({} on average; ordinary ones: {}):",
        count(found.slow.requests),
        found.percent,
        time(found.slow.mean_ns as i64),
        time(found.ordinary.mean_ns as i64)
    )));
    let columns = [
        "waited for",
        "in",
        "thread",
        ">slow",
        ">ordinary",
        ">any time",
        ">excess",
        ">explains",
        ">of the slow",
    ];
    let rows = found.causes.iter().take(CAUSES).map(|cause| {
        let threads = match cause.threads {
            1 => String::new(),
            threads => format!(" × {threads}"),
        };
        vec![
            cause.label.clone(),
            cause.call.replace("(user)", "between calls"),
            format!("{}{threads}", cause.comm),
            time(cause.slow_ns as i64),
            time(cause.ordinary_ns as i64),
            time(cause.anytime_ns as i64),
            time(cause.excess_ns as i64),
            format!("{:.0} %", 100.0 * cause.explains),
            format!("{:.0} %", 100.0 * cause.part),
        ]
    });
    parts.push(table(&columns, rows.collect()));
    parts.push(Part::Sentence(found.explained_words()));
}
