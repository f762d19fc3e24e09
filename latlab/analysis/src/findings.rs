//! The most important results in sentences, each with the section of the page that shows it.

use kit_units as units;
use serde::Serialize;

use crate::number::latency;
use crate::report::{Number, RunReport};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub text: String,
    /// The section of the page.
    pub evidence: &'static str,
}

/// If less than this part of the time of slow requests is unexplained, it is not mentioned.
const MUCH_UNEXPLAINED: f64 = 0.2;

/// `14 %`
fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

fn finding(text: String, evidence: &'static str) -> Finding {
    Finding { text, evidence }
}

/// `runs` are in the order of their loads.
pub fn findings(runs: &[RunReport]) -> Vec<Finding> {
    let mut found = Vec::new();
    growth(runs, &mut found);
    // The run with the largest value; the plot shows the others.
    let most = runs
        .iter()
        .filter_map(|run| run.service_inversion)
        .fold(0.0, f64::max);
    for run in runs {
        let of = if runs.len() > 1 {
            format!("{}: ", run.name)
        } else {
            String::new()
        };
        let mut own = Vec::new();
        causes(run, &mut own);
        if runs.len() == 1 || run.service_inversion == Some(most) {
            inversion(run, &mut own);
        }
        burstiness(run, &mut own);
        found.extend(own.into_iter().map(|one| Finding {
            text: format!("{of}{}", one.text),
            ..one
        }));
    }
    found
}

/// The papers' question: does the median grow with the load, or only the mean?
fn growth(runs: &[RunReport], found: &mut Vec<Finding>) {
    let loaded: Vec<&RunReport> = runs.iter().filter(|run| run.load.is_some()).collect();
    let (Some(first), Some(last)) = (loaded.first(), loaded.last()) else {
        return;
    };
    let same = first.data_set_bytes == last.data_set_bytes && first.unit == last.unit;
    if !same || first.load == last.load {
        return;
    }
    let change = |name: &str, before: Number, after: Number| {
        let times = after.0 / before.0.max(1e-9);
        format!(
            "the {name} goes from {} to {} ({times:.*} times)",
            latency(before, first.unit),
            latency(after, last.unit),
            usize::from(times < 10.0),
        )
    };
    let mut text = format!(
        "From load {:.2} to {:.2}, {}, {} and {}",
        first.load.unwrap_or(0.0),
        last.load.unwrap_or(0.0),
        change("median", first.percentiles.p50, last.percentiles.p50),
        change("mean", first.latency.mean, last.latency.mean),
        change(
            "99th percentile",
            first.percentiles.p99,
            last.percentiles.p99
        ),
    );
    if let (Some(before), Some(after)) = (first.service_inversion, last.service_inversion) {
        text.push_str(&format!(
            "; service inversion from {before:.2} to {after:.2}"
        ));
    }
    text.push('.');
    found.push(finding(text, "loads"));
}

fn inversion(run: &RunReport, found: &mut Vec<Finding>) {
    let (Some(value), Some(inversion)) = (run.service_inversion, &run.inversion) else {
        return;
    };
    if inversion.reversed == 0.0 {
        found.push(finding(
            "All responses have the same size: there is no service inversion to see.".to_string(),
            "inversion",
        ));
        return;
    }
    let mut text = format!(
        "Service inversion is {value:.2}: 0 is in the order of sizes, {:.2} no order at all",
        inversion.random
    );
    if let Some(corrected) = &inversion.corrected {
        text.push_str(&format!(
            "; an ideal server under this load has {:.2}, so that {:.2} is the server's own",
            corrected.ideal, corrected.value
        ));
    }
    text.push('.');
    found.push(finding(text, "inversion"));
}

fn causes(run: &RunReport, found: &mut Vec<Finding>) {
    let Some(causes) = run
        .server
        .as_ref()
        .and_then(|server| server.causes.as_ref())
    else {
        return;
    };
    let time = |ns: f64| units::time(ns.max(0.0).round() as u64);
    let slow = &causes.slow;
    let mut any = false;
    for cause in causes.explaining().take(3) {
        any = true;
        let on = cause
            .resource
            .as_ref()
            .map_or(String::new(), |what| format!(" ({what})"));
        let owner = cause
            .owner
            .as_ref()
            .map_or(String::new(), |who| format!(", held by {who}"));
        let place = place(&cause.call);
        let doing = match cause.is_computing() {
            true => "was computing".to_string(),
            false => format!("waited for {}{on}", cause.label),
        };
        found.push(finding(
            format!(
                "Requests slower than {} % of all took {} on average; in {} % of them {} {doing} {place}{owner}: {} \
                 in each, against {} in an ordinary request. That explains {} of their time.",
                causes.percent,
                time(slow.mean_ns),
                (100.0 * cause.part).round(),
                cause.comm,
                time(cause.slow_ns),
                time(cause.ordinary_ns),
                percent(cause.explains),
            ),
            "causes",
        ));
    }
    let unexplained = 1.0 - causes.explained;
    if any && unexplained >= MUCH_UNEXPLAINED {
        found.push(finding(
            format!(
                "{} of the time of requests slower than {} % of all is not explained: {} on average, in which no \
                 thread of the server waited for or computed anything more than at any time.",
                percent(unexplained),
                causes.percent,
                time(unexplained * slow.mean_ns),
            ),
            "causes",
        ));
    }
    if any {
        return;
    }
    if let Some(cause) = causes.of_all() {
        found.push(finding(
            format!(
                "While slow requests and ordinary ones alike are on their way, an event loop of {} is blocked most \
                 of the time, and with it all that it serves: {} {}, {} of {} in those slower than {} % of all, {} \
                 of {} in ordinary ones.",
                cause.comm,
                cause.label,
                place(&cause.call),
                time(cause.slow_ns),
                time(slow.mean_ns),
                causes.percent,
                time(cause.ordinary_ns),
                time(causes.ordinary.mean_ns),
            ),
            "causes",
        ));
    } else {
        found.push(finding(
            format!(
                "Requests slower than {} % of all took {} on average, and no wait of the server's threads, nor what \
                 they computed, explains it: some thread was blocked {} of that, against {} in an ordinary request.",
                causes.percent,
                time(slow.mean_ns),
                time(slow.blocked_ns),
                time(causes.ordinary.blocked_ns)
            ),
            "causes",
        ));
    }
}

fn place(call: &str) -> String {
    match call {
        "(user)" => "between calls".to_string(),
        call => format!("in {call}"),
    }
}

fn burstiness(run: &RunReport, found: &mut Vec<Finding>) {
    let Some(server) = &run.server else { return };
    if let Some(ready) = &server.burstiness.ready {
        found.push(finding(
            format!(
                "The server got {:.1} events at once on average (median {}, 95 % {}, most {}).",
                ready.mean, ready.median, ready.p95, ready.max
            ),
            "burstiness",
        ));
    }
    if let Some(runnable) = server
        .burstiness
        .runnable
        .as_ref()
        .filter(|runnable| runnable.threads > 4)
    {
        found.push(finding(
            format!(
                "None of its {} threads was runnable {:.0} % of the time, and more than 80 % of them {:.0} % of \
                 it.",
                runnable.threads,
                100.0 * runnable.none,
                100.0 * runnable.over_80_percent
            ),
            "burstiness",
        ));
    }
}
