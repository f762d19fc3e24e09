//! Procedures of several runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use latlab::run::{run, Plan};
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::{by_status, Summary};
use latlab::units::{count, time};
use latlab_analysis::in_flight::{listed, InFlight, LittlesLaw};
use serde::Serialize;

use crate::exit::NOT_VALID;
use crate::plan::open_loop;
use crate::progress::{step, Progress};

/// A figure of several equal runs: median, minimum and maximum.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            odd if odd % 2 == 1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Spread {
            median,
            least: values[0],
            greatest: values[values.len() - 1],
        })
    }
}

/// Figures of several runs: throughput, and latency from the intended start in nanoseconds.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub mean_ns: Option<Spread>,
    pub p5_ns: Option<Spread>,
    pub p50_ns: Option<Spread>,
    pub p95_ns: Option<Spread>,
    pub p99_ns: Option<Spread>,
    pub throughput_rps: Option<Spread>,
    #[serde(skip)]
    pub errors: u64,
}

impl Figures {
    /// Above the columns of `row`.
    pub const HEADING: [&str; 7] = ["served/s", "mean", "p5", "p50", "p95", "p99", "errors"];

    pub fn of(runs: &[Summary]) -> Figures {
        let latencies = || runs.iter().filter_map(|run| run.latency_from_intended);
        Figures {
            mean_ns: Spread::of(latencies().map(|latency| latency.mean_ns as f64)),
            p5_ns: Spread::of(latencies().map(|latency| latency.p5_ns as f64)),
            p50_ns: Spread::of(latencies().map(|latency| latency.p50_ns as f64)),
            p95_ns: Spread::of(latencies().map(|latency| latency.p95_ns as f64)),
            p99_ns: Spread::of(latencies().map(|latency| latency.p99_ns as f64)),
            throughput_rps: Spread::of(runs.iter().map(|run| run.throughput_rps)),
            errors: runs.iter().flat_map(|run| run.errors.values()).sum(),
        }
    }

    /// Medians, formatted.
    pub fn row(&self) -> [String; 7] {
        let shown = |spread: Option<Spread>| match spread {
            Some(spread) => time(spread.median as i64).replace(' ', ""),
            None => "none".to_string(),
        };
        // Without a run, nothing was counted.
        let counted = |number: u64| match self.throughput_rps {
            Some(_) => count(number),
            None => "none".to_string(),
        };
        let served = self.throughput_rps.map_or(0.0, |spread| spread.median);
        [
            counted(served.round() as u64),
            shown(self.mean_ns),
            shown(self.p5_ns),
            shown(self.p50_ns),
            shown(self.p95_ns),
            shown(self.p99_ns),
            counted(self.errors),
        ]
    }
}

/// Joins cells to columns of a table.
pub fn columns<T: AsRef<str>>(cells: &[T]) -> String {
    cells
        .iter()
        .map(|cell| format!(" {:>9}", cell.as_ref()))
        .collect()
}

/// Makes a directory for the rows of all runs.
pub fn new_directory(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    ensure!(
        std::fs::read_dir(directory)?.next().is_none(),
        "{} is not empty: name a new directory",
        directory.display()
    );
    Ok(())
}

pub fn run_once(plan: &Plan) -> Result<Summary> {
    let duration = u64::try_from(plan.duration_ns).unwrap_or(0);
    let progress = Progress::time(std::time::Duration::from_nanos(duration));
    let summary = run(plan, |now| progress.run(now));
    progress.end();
    summary
}

/// Runs a plan completely: an interrupted run does not count for a procedure, and ends it.
pub fn run_whole(plan: &Plan) -> Result<Summary> {
    let summary = run_once(plan)?;
    ensure!(!summary.interrupted, Interrupted);
    Ok(summary)
}

/// Why runs are not valid, each with the server and the load.
pub fn troubles<'a>(runs: impl IntoIterator<Item = &'a Summary>) -> Vec<String> {
    let mut all: Vec<String> = runs
        .into_iter()
        .filter_map(|run| {
            let why = run.refused.as_ref()?;
            Some(format!("{}: {why}", run.label()))
        })
        .collect();
    all.dedup();
    all
}

/// How many requests failed, and how; `None` if none did. The tables have only the number.
fn failures(runs: &[&Summary]) -> Option<String> {
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
    for run in runs {
        for (name, times) in &run.errors {
            *errors.entry(name).or_default() += times;
        }
        for (status, times) in &run.statuses {
            *statuses.entry(*status).or_default() += times;
        }
    }
    let failed: u64 = errors.values().sum();
    let by_status = match statuses.is_empty() {
        true => String::new(),
        false => format!("; by status: {}", by_status(&statuses)),
    };
    (failed > 0).then(|| {
        format!(
            "{} of {} requests of all runs failed ({}{by_status}): latencies are of the others alone",
            count(failed),
            count(runs.iter().map(|run| run.requests).sum()),
            listed(&errors)
        )
    })
}

/// Prints what a reader has to know about the runs in addition to their figures, and how many runs it
/// applies to.
fn warn(runs: &[&Summary]) {
    let in_flight = || runs.iter().filter_map(|run| run.in_flight.as_ref());
    let carried: u64 = in_flight().map(|flight| flight.carried()).sum();
    if carried > 0 {
        kit_console::say!(
            "latlab: WARNING: {} requests that were in flight when the measured time of a run began failed \
            after that: they are in no other figure",
            count(carried)
        );
    }
    if let Some(words) = failures(runs) {
        kit_console::say!("latlab: {words}");
    }
    let fails = |flight: &&InFlight| flight.littles_law == Some(LittlesLaw::Fails);
    let failing = in_flight().filter(fails).count();
    if failing > 0 {
        kit_console::say!(
            "latlab: WARNING: in {failing} of {} runs throughput times mean latency is not the number of requests \
            in flight (`in_flight` with --format json)",
            runs.len()
        );
    }
}

/// The exit status: whether the result of a procedure is valid for the server. `interrupted`: the
/// procedure was not completed.
pub fn judge<'a>(runs: impl IntoIterator<Item = &'a Summary>, interrupted: bool) -> u8 {
    let runs: Vec<&Summary> = runs.into_iter().collect();
    warn(&runs);
    let mut all = troubles(runs);
    if interrupted {
        all.push("interrupted: it is of the runs until then".to_string());
    }
    status(&all)
}

pub fn status(troubles: &[String]) -> u8 {
    for trouble in troubles {
        kit_console::say!("latlab: NOT VALID: {trouble}");
    }
    if troubles.is_empty() {
        0
    } else {
        NOT_VALID
    }
}

/// All runs at one load.
#[derive(Serialize)]
pub struct AtLoad {
    pub load: f64,
    pub offered_rps: f64,
    pub files: Vec<String>,
    #[serde(flatten)]
    pub figures: Figures,
    pub runs: Vec<Summary>,
}

/// Runs each load in an open loop, all loads in turn in each repeat. After an interruption, returns what
/// was measured before.
pub fn measure_loads(
    plan: &Plan,
    capacity_rps: f64,
    loads: &[f64],
    repeats: u32,
    directory: &Path,
) -> Result<(Vec<AtLoad>, bool)> {
    let mut interrupted = false;
    let mut loads: Vec<AtLoad> = loads
        .iter()
        .map(|load| AtLoad {
            load: *load,
            offered_rps: load * capacity_rps,
            files: Vec::new(),
            figures: Figures::default(),
            runs: Vec::new(),
        })
        .collect();
    let all = loads.len() * repeats as usize;
    let mut number = 0;
    'all: for repeat in 1..=repeats {
        for at_load in &mut loads {
            number += 1;
            step(&format!("load {}, run {number} of {all}", at_load.load));
            let file = format!("load-{:.3}-{repeat}.parquet", at_load.load);
            let plan = Plan {
                // The same requests at the same load for any server, so that two profiles can be
                // compared.
                seed: plan.seed + u64::from(repeat),
                mode: open_loop(&[at_load.offered_rps], plan.duration_ns, true),
                load: Some(at_load.load),
                output: Some(directory.join(&file)),
                ..plan.clone()
            };
            let Some(summary) = unless_interrupted(run_whole(&plan))? else {
                interrupted = true;
                break 'all;
            };
            let ended = summary.server_ended.is_some();
            at_load.files.push(file);
            at_load.runs.push(summary);
            if ended {
                break 'all;
            }
        }
    }
    for at_load in &mut loads {
        at_load.figures = Figures::of(&at_load.runs);
    }
    Ok((loads, interrupted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_none_and_not_zero() {
        assert_eq!(Figures::of(&[]).row(), ["none"; 7].map(String::from));
    }

    #[test]
    fn a_spread_has_the_median_and_the_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(
            (spread.median, spread.least, spread.greatest),
            (2.5, 1.0, 10.0)
        );
        assert!(Spread::of([]).is_none());
    }
}
