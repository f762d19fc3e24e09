//! The figures on a terminal.

use std::io::{self, Write};

use kit_console::printable;
use kit_console::table::Grid;
use kit_units as units;

use crate::compare::{Comparison, Verdict};
use crate::history::{Causes, ServerHistory};
use crate::mode::Mode;
use crate::number::{latency, plain};
use crate::report::{Bounds, Number, Report, RunReport};
use crate::request::{Basis, Unit};
use crate::stats::PERCENTS;

fn between((low, high): &Bounds, unit: Unit) -> String {
    let side = |bound: &Option<Number>| bound.map_or("?".to_string(), |bound| latency(bound, unit));
    if low.is_none() && high.is_none() {
        return "too few requests".to_string();
    }
    format!("{} to {}", side(low), side(high))
}

pub fn heading(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n{}", printable(text))
}

/// Prints an indented text, wrapped at the terminal's width.
pub fn note(out: &mut dyn Write, text: &str, width: usize) -> io::Result<()> {
    let room = width.clamp(40, 100) - 4;
    let mut line = String::new();
    let mut first = true;
    for word in printable(text).split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            writeln!(out, "  {}{line}", if first { "- " } else { "  " })?;
            first = false;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "  {}{line}", if first { "- " } else { "  " })
}

pub fn print(out: &mut dyn Write, report: &Report, width: usize) -> io::Result<()> {
    let mut first = true;
    if !report.findings.is_empty() {
        writeln!(out, "Findings")?;
        for finding in &report.findings {
            note(out, &finding.text, width)?;
        }
        writeln!(out)?;
    }
    if report.runs.len() > 1 {
        over_loads(out, &report.runs, width)?;
        first = false;
    }
    for run in report.all() {
        if !first {
            writeln!(out)?;
        }
        first = false;
        one(out, run, width)?;
    }
    for comparison in &report.against {
        against(out, comparison, report, width)?;
    }
    Ok(())
}

/// The load in one word: what was requested.
fn load(run: &RunReport) -> String {
    match (run.load, run.offered_rps, run.connections) {
        (Some(load), _, _) => format!("{load:.2}"),
        (None, Some(rate), _) => format!("{}/s", plain(rate)),
        (None, None, Some(connections)) => format!("{connections} connections"),
        (None, None, None) => "not known".to_string(),
    }
}

fn over_loads(out: &mut dyn Write, runs: &[RunReport], width: usize) -> io::Result<()> {
    writeln!(out, "{} runs", runs.len())?;
    let sets = runs
        .iter()
        .any(|run| run.data_set_bytes != runs[0].data_set_bytes);
    let mut columns = vec!["run", ">load"];
    if sets {
        columns.push(">data set");
    }
    columns.extend([
        ">requests",
        ">failed",
        ">5 %",
        ">50 %",
        ">95 %",
        ">99 %",
        ">99.9 %",
        ">mean",
        ">inversion",
        ">corrected",
    ]);
    let name = runs.iter().map(|run| run.name.chars().count()).max();
    let least = name.unwrap_or(0).clamp(6, 24) as u16 + 3;
    let mut grid = Grid::with_least(&columns, width, least);
    for run in runs {
        let mut row = vec![run.name.clone(), load(run)];
        if sets {
            row.push(run.data_set_bytes.map_or(String::new(), units::bytes));
        }
        row.push(units::count(run.requests));
        row.push(units::count(run.failed.values().sum()));
        row.extend(run.percentiles.all().map(|value| latency(value, run.unit)));
        row.push(latency(run.latency.mean, run.unit));
        row.push(
            run.service_inversion
                .map_or(String::new(), |value| format!("{value:.3}")),
        );
        let corrected = run
            .inversion
            .as_ref()
            .and_then(|inversion| inversion.corrected.as_ref());
        row.push(corrected.map_or(String::new(), |corrected| {
            format!("{:+.3}", corrected.value)
        }));
        grid.row(row);
    }
    grid.print(out)
}

fn one(out: &mut dyn Write, run: &RunReport, width: usize) -> io::Result<()> {
    writeln!(out, "{} ({})", printable(&run.name), run.format)?;
    let mut facts = vec![format!("{} requests", units::count(run.requests))];
    if let (Some(seconds), Some(rate)) = (run.seconds, run.requests_per_second) {
        facts.push(format!(
            "in {} s, {} per second",
            plain(seconds),
            plain(rate)
        ));
    }
    if let Some(bytes) = run.bytes_per_second {
        facts.push(format!("{}/s", units::bytes(bytes as u64)));
    }
    facts.push(format!("load {}", load(run)));
    if let Some(bytes) = run.data_set_bytes {
        facts.push(format!("data set {}", units::bytes(bytes)));
    }
    if run.warm_up > 0 {
        facts.push(format!("{} more in the warm-up", units::count(run.warm_up)));
    }
    note(out, &facts.join("; "), width)?;
    for sentence in &run.caveats {
        note(out, sentence, width)?;
    }
    if run.failed.len() > 1 {
        let reasons: Vec<String> = run
            .failed
            .iter()
            .map(|(reason, count)| format!("{reason} {}", units::count(*count)))
            .collect();
        note(out, &format!("Failed: {}.", reasons.join(", ")), width)?;
    }
    percentiles(out, run, width)?;
    steps(out, run, width)?;
    inversion(out, run, width)?;
    deciles(out, run, width)?;
    match &run.server {
        Some(server) => server_history(out, server, width),
        None => Ok(()),
    }
}

fn percentiles(out: &mut dyn Write, run: &RunReport, width: usize) -> io::Result<()> {
    let from = match run.latency_from {
        Basis::Intended => "from when the request was due to its last byte",
        Basis::Sent => "from when the request was sent to its last byte",
        Basis::FirstByte => "from when the request was sent to its first byte",
    };
    let unit = match run.unit {
        Unit::Nanoseconds => "",
        Unit::Unstated => ", in the file's own unit",
    };
    heading(out, &format!("Latency, {from}{unit}"))?;
    let mut grid = Grid::new(&["", ">latency", "between, at 95 %"], width);
    for (percent, (value, bounds)) in PERCENTS.iter().zip(
        run.percentiles
            .all()
            .into_iter()
            .zip(run.intervals.percentiles.all()),
    ) {
        grid.row([
            format!("{percent} %"),
            latency(value, run.unit),
            between(&bounds, run.unit),
        ]);
    }
    let mean = between(&run.intervals.mean, run.unit);
    grid.row([
        "mean".to_string(),
        latency(run.latency.mean, run.unit),
        mean,
    ]);
    let ends = [("lowest", run.latency.min), ("highest", run.latency.max)];
    for (name, value) in ends {
        grid.row([name.to_string(), latency(value, run.unit), String::new()]);
    }
    grid.print(out)
}

fn steps(out: &mut dyn Write, run: &RunReport, width: usize) -> io::Result<()> {
    if run.steps.is_empty() {
        return Ok(());
    }
    heading(out, "Latency by step of the rate")?;
    let columns = [
        ">offered/s",
        ">requests",
        ">failed",
        ">5 %",
        ">50 %",
        ">95 %",
        ">99 %",
        ">99.9 %",
        ">mean",
        ">highest",
    ];
    let mut grid = Grid::new(&columns, width);
    for step in &run.steps {
        let mut row = vec![
            plain(step.offered_rps),
            units::count(step.requests),
            units::count(step.failed),
        ];
        let percentiles = step.percentiles.map(|percentiles| percentiles.all());
        let values = percentiles
            .into_iter()
            .flatten()
            .chain(step.mean)
            .chain(step.max);
        row.extend(values.map(|value| latency(value, run.unit)));
        grid.row(row);
    }
    grid.print(out)
}

fn inversion(out: &mut dyn Write, run: &RunReport, width: usize) -> io::Result<()> {
    let (Some(value), Some(inversion)) = (run.service_inversion, &run.inversion) else {
        return Ok(());
    };
    heading(
        out,
        "Service inversion: 0 in the order of sizes, 1 in the reverse order",
    )?;
    let range = |interval: Option<(f64, f64)>| match interval {
        Some((low, high)) => format!("between {low:.3} and {high:.3}, at 95 %"),
        None => "too few requests for an interval".to_string(),
    };
    let mut grid = Grid::new(&["", ">", ""], width);
    let mut row =
        |name: &str, value: String, says: String| grid.row([name.to_string(), value, says]);
    row(
        "this server",
        format!("{value:.3}"),
        range(inversion.interval),
    );
    match (&inversion.corrected, &inversion.not_corrected) {
        (Some(corrected), _) => {
            let arrivals = match corrected.arrivals {
                Mode::Open => "the same arrivals",
                Mode::Closed => "the same connections",
            };
            row(
                "an ideal server",
                format!("{:.3}", corrected.ideal),
                format!(
                    "shares its capacity equally; {arrivals}, busy {:.0} % of the time",
                    100.0 * corrected.utilisation
                ),
            );
            row(
                "corrected",
                format!("{:+.3}", corrected.value),
                range(corrected.interval),
            );
        }
        (None, Some(why)) => row("corrected", String::new(), format!("not known: {why}")),
        (None, None) => {}
    }
    row(
        "no order at all",
        format!("{:.3}", inversion.random),
        String::new(),
    );
    row(
        "the reverse order",
        format!("{:.3}", inversion.reversed),
        "with these sizes".to_string(),
    );
    grid.print(out)?;
    let jain =
        |value: Option<f64>| value.map_or("not known".to_string(), |value| format!("{value:.3}"));
    let connections = match (run.connections_used, run.connections_unserved) {
        (Some(used), Some(0)) => format!("{} connections", units::count(used)),
        (Some(used), Some(unserved)) => format!(
            "{} connections, {} of them without an answer,",
            units::count(used),
            units::count(unserved)
        ),
        _ => "connections".to_string(),
    };
    note(
        out,
        &format!(
            "Jain's fairness index: {} over {connections} (requests done), {} over requests (bytes per second \
             of latency); 1 is fair.",
            jain(run.jain.per_connection),
            jain(run.jain.per_request)
        ),
        width,
    )
}

pub fn deciles(out: &mut dyn Write, run: &RunReport, width: usize) -> io::Result<()> {
    if run.deciles.is_empty() {
        return Ok(());
    }
    heading(
        out,
        "Which sizes are in each tenth of the requests, fastest first",
    )?;
    let names: Vec<String> = run
        .series
        .iter()
        .map(|one| {
            if one.size_min == one.size_max {
                format!(">{}", units::bytes(one.size_min))
            } else {
                format!(
                    ">{} to {}",
                    units::bytes(one.size_min),
                    units::bytes(one.size_max)
                )
            }
        })
        .collect();
    let mut columns = vec![">tenth", ">latency up to"];
    columns.extend(names.iter().map(String::as_str));
    columns.push(">mean size");
    let mut grid = Grid::new(&columns, width);
    for decile in run.deciles.iter().filter(|decile| decile.requests > 0) {
        let mut row = vec![decile.decile.to_string()];
        row.push(
            decile
                .latency_max
                .map_or(String::new(), |value| latency(value, run.unit)),
        );
        row.extend(
            decile
                .series
                .iter()
                .map(|part| format!("{:.0} %", 100.0 * part)),
        );
        row.push(units::bytes(decile.size_mean as u64));
        grid.row(row);
    }
    let mut all = vec!["all".to_string(), String::new()];
    all.extend(
        run.series
            .iter()
            .map(|one| format!("{:.2} %", 100.0 * one.share)),
    );
    grid.row(all);
    grid.print(out)
}

fn against(
    out: &mut dyn Write,
    comparison: &Comparison,
    report: &Report,
    width: usize,
) -> io::Result<()> {
    heading(
        out,
        &printable(&format!("{} against {}", comparison.run, comparison.base)),
    )?;
    let unit = report.all().next().map_or(Unit::Unstated, |run| run.unit);
    let changed = format!("changed by, all at {:.3} %", 100.0 * comparison.confidence);
    let changed = changed.replace(".000", "");
    let mut grid = Grid::new(&["", ">before", ">now", "", &changed], width);
    for one in &comparison.differences {
        let is_inversion = one.figure == "service_inversion";
        let show = |value: f64| {
            if is_inversion {
                format!("{value:.3}")
            } else {
                latency(Number(value), unit)
            }
        };
        let verdict = match one.verdict {
            Verdict::Lower => "lower",
            Verdict::Higher => "higher",
            Verdict::None => "no difference that the data show",
            Verdict::Unknown => "too few requests",
        };
        let change = one.change.map_or(String::new(), |(low, high)| {
            if is_inversion {
                format!("{low:+.3} to {high:+.3}")
            } else {
                format!("{low:+.1} % to {high:+.1} %")
            }
        });
        grid.row([
            one.figure
                .replace("p99_9", "99.9 %")
                .replace("service_", "service "),
            show(one.base),
            show(one.value),
            verdict.to_string(),
            change,
        ]);
    }
    grid.print(out)
}

pub fn server_history(out: &mut dyn Write, server: &ServerHistory, width: usize) -> io::Result<()> {
    heading(out, "The server, from its history")?;
    for sentence in &server.caveats {
        note(out, sentence, width)?;
    }
    if !server.burstiness.threads.is_empty() {
        let columns = [
            "events at once",
            ">calls",
            ">mean",
            ">50 %",
            ">95 %",
            ">most",
            ">over 100",
            ">empty",
        ];
        let mut grid = Grid::new(&columns, width);
        for one in server
            .burstiness
            .ready
            .iter()
            .chain(&server.burstiness.threads)
        {
            let name = one
                .tid
                .map_or("all".to_string(), |tid| format!("{} ({tid})", one.comm));
            grid.row([
                name,
                units::count(one.calls),
                format!("{:.2}", one.mean),
                units::count(one.median),
                units::count(one.p95),
                units::count(one.max),
                format!("{:.1} %", 100.0 * one.over_100),
                units::count(one.empty),
            ]);
        }
        grid.print(out)?;
    }
    match (&server.burstiness.runnable, &server.burstiness.no_runnable) {
        (Some(runnable), _) => note(
            out,
            &format!(
                "Of {} threads, {:.2} were runnable on average; none {:.1} % of the time, more than 80 % of \
                 them {:.1} % of it.",
                runnable.threads,
                runnable.mean,
                100.0 * runnable.none,
                100.0 * runnable.over_80_percent
            ),
            width,
        )?,
        (None, Some(why)) => note(out, &format!("Runnable threads: not known, because {why}."), width)?,
        (None, None) => {}
    }
    match (&server.causes, &server.no_causes) {
        (Some(found), _) => causes(out, found, width),
        (None, Some(why)) => note(out, &format!("Causes: not known, because {why}."), width),
        (None, None) => Ok(()),
    }
}

fn causes(out: &mut dyn Write, found: &Causes, width: usize) -> io::Result<()> {
    let time = |ns: f64| {
        let text = units::time(ns.abs().round() as u64);
        if ns <= -0.5 {
            format!("-{text}")
        } else {
            text
        }
    };
    heading(
        out,
        &format!(
            "What its threads waited for, or computed, in {} requests slower than {} % (of {}; {} ordinary ones: {})",
            units::count(found.slow.requests),
            found.percent,
            time(found.slow.mean_ns),
            units::count(found.ordinary.requests),
            time(found.ordinary.mean_ns)
        ),
    )?;
    if found.outside > 0 {
        let text = format!(
            "{} more slow requests are not all in the time that was recorded.",
            units::count(found.outside)
        );
        note(out, &text, width)?;
    }
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
        "mostly",
        "held by",
    ];
    let mut grid = Grid::new(&columns, width);
    for cause in &found.causes {
        let threads = if cause.threads > 1 {
            format!(" ×{}", cause.threads)
        } else {
            String::new()
        };
        grid.row([
            cause.label.clone(),
            cause.call.replace("(user)", "between calls"),
            format!("{}{threads}", cause.comm),
            time(cause.slow_ns),
            time(cause.ordinary_ns),
            time(cause.anytime_ns),
            time(cause.excess_ns),
            format!("{:.0} %", 100.0 * cause.explains),
            format!("{:.0} %", 100.0 * cause.part),
            cause.resource.clone().unwrap_or_default(),
            cause.owner.clone().unwrap_or_default(),
        ]);
    }
    grid.print(out)?;
    note(
        out,
        "Excess: longer than in intervals as long as the slow requests at any time of the run. Idle waits are not told, but for timers.",
        width,
    )?;
    note(out, &found.explained_words(), width)
}
