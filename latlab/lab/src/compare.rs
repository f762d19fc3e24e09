//! `latlab compare`: measures two servers in turn.

mod flips;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Result};
use kit_console::printable;
use latlab::run::Plan;
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::Summary;
use latlab::units::{count, time};
use serde::Serialize;

use crate::options::{Compare, Format, Target};
use crate::output;
use crate::plan::{ns, of_what, open_loop, ready, replayed_log};
use crate::procedure::{judge, new_directory, run_whole, Spread};
use crate::progress::step;
use flips::{adjusted_p_values, least_repeats};

/// The figures that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    ThroughputRps,
    MeanNs,
    P50Ns,
    P95Ns,
    P99Ns,
}

const MEASURES: [(Measure, &str); 5] = [
    (Measure::ThroughputRps, "requests/s"),
    (Measure::MeanNs, "mean"),
    (Measure::P50Ns, "p50"),
    (Measure::P95Ns, "p95"),
    (Measure::P99Ns, "p99"),
];

impl Measure {
    fn of(self, run: &Summary) -> Option<f64> {
        let latency = run.latency_from_intended;
        match self {
            Measure::ThroughputRps => Some(run.throughput_rps),
            Measure::MeanNs => latency.map(|latency| latency.mean_ns as f64),
            Measure::P50Ns => latency.map(|latency| latency.p50_ns as f64),
            Measure::P95Ns => latency.map(|latency| latency.p95_ns as f64),
            Measure::P99Ns => latency.map(|latency| latency.p99_ns as f64),
        }
    }

    fn name(self) -> &'static str {
        let found = MEASURES.iter().find(|(measure, _)| *measure == self);
        found.map_or("", |(_, name)| name)
    }

    fn show(self, value: f64) -> String {
        match self {
            Measure::ThroughputRps => count(value.round() as u64),
            _ => time(value as i64).replace(' ', ""),
        }
    }
}

const DURATION: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Compared {
    measure: Measure,
    a: Spread,
    b: Spread,
    /// Ratio of b to a in each repeat.
    ratio: Spread,
    /// Whether all repeats agree on which server has more.
    differs: bool,
    /// The smallest error rate of the whole table at which this row shows a difference.
    p_value: f64,
    difference_shown: bool,
}

/// `latlab.compare/1`
#[derive(Serialize)]
struct Comparison {
    schema: &'static str,
    a: String,
    b: String,
    /// Whether it was interrupted before all repeats.
    interrupted: bool,
    /// The probability that a table of two equal servers shows any difference.
    error_rate: f64,
    measures: Vec<Compared>,
    a_runs: Vec<Summary>,
    b_runs: Vec<Summary>,
}

pub fn compare(arguments: &Compare) -> Result<u8> {
    if let Some(directory) = &arguments.output {
        new_directory(directory)?;
    }
    let (mut a_runs, mut b_runs) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (String::new(), String::new());
    let mut interrupted = false;
    let mut number = 0;
    'all: for repeat in 1..=arguments.repeats {
        let mut both = [
            (&arguments.a, "a", &mut a_runs, &mut a),
            (&arguments.b, "b", &mut b_runs, &mut b),
        ];
        if repeat % 2 == 0 {
            both.reverse();
        }
        for (target, side, runs, name) in both {
            number += 1;
            let all = 2 * u64::from(arguments.repeats);
            step(&format!("{side}, run {number} of {all}"));
            let file = format!("{side}-{repeat}.parquet");
            let output = arguments
                .output
                .as_ref()
                .map(|directory| directory.join(file));
            let measured = measure(arguments, target, repeat, output.as_deref());
            let Some((run, called)) = unless_interrupted(measured)? else {
                interrupted = true;
                break 'all;
            };
            runs.push(run);
            *name = called;
        }
    }
    // A comparison needs at least one pair.
    ensure!(!a_runs.is_empty() && !b_runs.is_empty(), Interrupted);
    let result = Comparison {
        schema: "latlab.compare/1",
        error_rate: arguments.error_rate,
        measures: compared(&a_runs, &b_runs, arguments.error_rate),
        interrupted,
        a,
        b,
        a_runs,
        b_runs,
    };
    match arguments.format {
        Format::Json => output::json(&result)?,
        Format::Text => output::text(|out| print(out, &result))?,
    }
    let runs = result.a_runs.iter().chain(&result.b_runs);
    Ok(judge(runs, result.interrupted))
}

fn measure(
    arguments: &Compare,
    target: &Target,
    repeat: u32,
    output: Option<&Path>,
) -> Result<(Summary, String)> {
    let what = &arguments.what;
    let ready = ready(target, what, None)?;
    let duration = arguments.duration.unwrap_or(DURATION);
    let plan = of_what(
        &ready,
        what,
        duration,
        arguments.warmup,
        arguments.connections,
    )?;
    let plan = Plan {
        // Both servers get the same requests.
        seed: plan.seed + u64::from(repeat),
        mode: match arguments.rate {
            Some(rate) => open_loop(&[rate], ns(duration), true),
            None => plan.mode,
        },
        output: output.map(Path::to_path_buf),
        ..plan
    };
    let plan = match (&what.log, arguments.log_speed) {
        (Some(log), Some(speed)) => replayed_log(plan, log, speed, true, arguments.duration)?,
        _ => plan,
    };
    Ok((run_whole(&plan)?, ready.name.clone()))
}

fn compared(a_runs: &[Summary], b_runs: &[Summary], error_rate: f64) -> Vec<Compared> {
    let logarithms = |(measure, _): (Measure, &str)| -> Vec<Option<f64>> {
        let pairs = a_runs.iter().zip(b_runs);
        let ratios = pairs.map(|(a, b)| Some(measure.of(b)? / measure.of(a)?));
        let logarithms = ratios.map(|ratio| ratio.map(f64::ln).filter(|log| log.is_finite()));
        logarithms.collect()
    };
    let rows = MEASURES.map(logarithms);
    let mut all = Vec::new();
    for ((measure, _), p_value) in MEASURES.into_iter().zip(adjusted_p_values(&rows)) {
        let pairs: Vec<(f64, f64)> = a_runs
            .iter()
            .zip(b_runs)
            .filter_map(|(a, b)| Some((measure.of(a)?, measure.of(b)?)))
            .filter(|(a, _)| *a > 0.0)
            .collect();
        let spread = |part: fn(&(f64, f64)) -> f64| Spread::of(pairs.iter().map(part));
        let (a, b) = (spread(|pair| pair.0), spread(|pair| pair.1));
        if let (Some(a), Some(b), Some(ratio)) = (a, b, spread(|pair| pair.1 / pair.0)) {
            all.push(Compared {
                measure,
                a,
                b,
                ratio,
                differs: ratio.least > 1.0 || ratio.greatest < 1.0,
                p_value,
                difference_shown: p_value <= error_rate,
            });
        }
    }
    all
}

fn print(out: &mut impl Write, result: &Comparison) -> io::Result<()> {
    let (a, b) = (printable(&result.a), printable(&result.b));
    writeln!(out, "a: {a}\nb: {b}\n")?;
    writeln!(out, "{:<11} {:>10} {:>10} {:>7}", "", "a", "b", "b/a")?;
    for compared in &result.measures {
        let name = compared.measure.name();
        let ratio = compared.ratio;
        let verdict = match compared.difference_shown {
            true => format!("  p {:.3}", compared.p_value),
            false => "  no difference shown".to_string(),
        };
        writeln!(
            out,
            "{name:<11} {:>10} {:>10} {:>7.3} ({:.3} to {:.3}){verdict}",
            compared.measure.show(compared.a.median),
            compared.measure.show(compared.b.median),
            ratio.median,
            ratio.least,
            ratio.greatest
        )?;
    }
    let errors =
        |runs: &[Summary]| -> u64 { runs.iter().flat_map(|run| run.errors.values()).sum() };
    writeln!(
        out,
        "{:<11} {:>10} {:>10}",
        "errors",
        count(errors(&result.a_runs)),
        count(errors(&result.b_runs))
    )?;
    let rate = percent(result.error_rate);
    let pairs = result.a_runs.len().min(result.b_runs.len());
    let needed = least_repeats(result.error_rate) as usize;
    match pairs < needed {
        true => writeln!(
            out,
            "\nAt an error rate of {rate} for the whole table no difference can be shown by {pairs} repeats: {needed} are \
            needed (--repeats)."
        ),
        false => writeln!(
            out,
            "\nOf tables of two equal servers at most {rate} show any difference (--error-rate; {pairs} repeats, whose \
            ratios are as likely to be inverted if the servers are equal)."
        ),
    }
}

/// `5 %`
fn percent(share: f64) -> String {
    format!("{} %", (share * 100_000.0).round() / 1000.0)
}
