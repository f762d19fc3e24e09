//! Measures how much a server can serve: first in closed loops without think time, then by a search for a rate that
//! it serves and a slightly higher one that it does not.
//!
//! A closed loop finds what its connections get. Whether a server keeps up with requests that arrive at a rate,
//! whatever the server does, shows only in an open loop. Loads are parts of the highest rate that was served.

use anyhow::{ensure, Context, Result};
use kit_console::printable;
use latlab::run::Plan;
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::Summary;
use latlab::units::count;
use serde::Serialize;

use crate::options::{Capacity, Format};
use crate::output;
use crate::plan::{of_what, open_loop, ready};
use crate::procedure::{judge, run_whole, Spread};
use crate::progress::step;

/// The search ends when the rate that is not served is at most this many times the one that is.
const PRECISION: f64 = 1.05;
/// While only one of the two is known, the next rate differs by this factor, and then by increasing ones.
const FIRST_STEP: f64 = 1.1;
const RATES_MAX: usize = 14;
/// Of the requests that begin, this part has to end in the same time; and this part may fail.
const ENDING: f64 = 0.98;
const FAILING: f64 = 0.01;

/// `latlab.capacity/1`
#[derive(Serialize)]
pub struct CapacityResult {
    schema: &'static str,
    url: String,
    /// Throughput of the closed loops.
    pub rps: Spread,
    pub bytes_per_second: Spread,
    #[serde(flatten)]
    pub interval: Interval,
    /// Whether it was interrupted before all repeats.
    pub interrupted: bool,
    /// Runs in closed loops, and then the runs of the search, in open loops.
    pub runs: Vec<Summary>,
    pub search: Vec<Summary>,
}

/// The rates between which the capacity is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The highest rate that was served.
    pub served_rps: Option<f64>,
    /// The lowest rate that was not served.
    pub not_served_rps: Option<f64>,
}

impl CapacityResult {
    /// The rate that loads are relative to: the rate that was served, if it was searched for.
    pub fn reference_rps(&self) -> f64 {
        self.interval.served_rps.unwrap_or(self.rps.median)
    }

    pub fn all_runs(&self) -> impl Iterator<Item = &Summary> {
        self.runs.iter().chain(&self.search)
    }

    /// `2,300 requests/s are served, 2,400 are not`
    pub fn describe(&self) -> String {
        let rate = |rps: f64| count(rps.round() as u64);
        match (self.interval.served_rps, self.interval.not_served_rps) {
            (Some(served), Some(not)) => {
                format!(
                    "{} requests/s are served, {} are not",
                    rate(served),
                    rate(not)
                )
            }
            (Some(served), None) => format!(
                "{} requests/s are served, and no rate was found that is not",
                rate(served)
            ),
            (None, Some(not)) => format!(
                "{} requests/s are not served, and no rate was found that is",
                rate(not)
            ),
            (None, None) => "no rate was tried".to_string(),
        }
    }

    /// `2,350 requests/s (2,300 to 2,400 in 3 runs)`
    pub fn describe_closed(&self) -> String {
        format!(
            "{} requests/s ({} to {} in {} runs)",
            count(self.rps.median.round() as u64),
            count(self.rps.least.round() as u64),
            count(self.rps.greatest.round() as u64),
            self.runs.len()
        )
    }
}

/// Replies that ended in the measured time, as a part of the requests that began in it.
pub fn kept_up(run: &Summary) -> f64 {
    run.throughput_rps * run.seconds / run.requests.max(1) as f64
}

/// Whether the server kept up with the rate of a run.
pub fn is_served(run: &Summary) -> bool {
    let failed = (run.requests - run.ok) as f64;
    run.requests > 0 && kept_up(run) >= ENDING && failed <= FAILING * run.requests as f64
}

/// Decides which rate is tried next.
#[derive(Debug)]
struct Search {
    interval: Interval,
    first_rps: f64,
    step: f64,
}

impl Search {
    fn new(first_rps: f64) -> Search {
        Search {
            interval: Interval::default(),
            first_rps,
            step: FIRST_STEP,
        }
    }

    /// `None` if the interval is narrow enough.
    fn next(&self) -> Option<f64> {
        match (self.interval.served_rps, self.interval.not_served_rps) {
            (None, None) => Some(self.first_rps),
            (Some(served), None) => Some(served * self.step),
            (None, Some(not)) => Some(not / self.step),
            (Some(served), Some(not)) => (not / served > PRECISION).then(|| (served * not).sqrt()),
        }
    }

    fn take(&mut self, rps: f64, is_served: bool) {
        let Interval {
            served_rps,
            not_served_rps,
        } = &mut self.interval;
        // The first step is small; later ones grow.
        if served_rps.is_some() || not_served_rps.is_some() {
            self.step = 1.0 + 2.0 * (self.step - 1.0);
        }
        match is_served {
            true => *served_rps = Some(rps),
            false => *not_served_rps = Some(rps),
        }
    }
}

/// Measures closed loops without think time.
pub fn closed_loops(plan: &Plan, repeats: u32) -> Result<CapacityResult> {
    let mut runs = Vec::new();
    let mut interrupted = false;
    for repeat in 0..repeats {
        step(&format!("capacity, run {} of {repeats}", repeat + 1));
        let plan = Plan {
            seed: plan.seed + u64::from(repeat),
            ..without_limit(plan)
        };
        let Some(summary) = unless_interrupted(run_whole(&plan))? else {
            interrupted = true;
            break;
        };
        let ended = summary.server_ended.clone();
        ensure!(
            summary.ok > 0,
            "{} gave no good reply: {:?}; {}",
            summary.url,
            summary.errors,
            ended.unwrap_or_else(|| {
                let tls = summary.tls_error.clone();
                tls.unwrap_or_else(|| format!("see `latlab run {}`", summary.url))
            })
        );
        runs.push(summary);
        if ended.is_some() {
            break;
        }
    }
    ensure!(!interrupted || !runs.is_empty(), Interrupted);
    let nothing = "there was no run";
    Ok(CapacityResult {
        schema: "latlab.capacity/1",
        url: plan.url.text(),
        rps: Spread::of(runs.iter().map(|run| run.throughput_rps)).context(nothing)?,
        bytes_per_second: Spread::of(runs.iter().map(|run| run.bytes_per_second))
            .context(nothing)?,
        interval: Interval::default(),
        interrupted,
        runs,
        search: Vec::new(),
    })
}

/// Latency does not matter here: only whether the generator had CPU time to spare.
fn without_limit(plan: &Plan) -> Plan {
    Plan {
        max_lateness_ns: i64::MAX,
        output: None,
        ..plan.clone()
    }
}

/// Measures closed loops, and from their throughput starts the search, in open loops with up to `connections`.
pub fn measure_capacity(plan: &Plan, repeats: u32, connections: u32) -> Result<CapacityResult> {
    let mut result = closed_loops(plan, repeats)?;
    let ended = result.runs.iter().any(|run| run.server_ended.is_some());
    if result.interrupted || ended {
        return Ok(result);
    }
    let plan = Plan {
        connections,
        ..without_limit(plan)
    };
    let mut search = Search::new(result.rps.median);
    for _ in 0..RATES_MAX {
        let Some(rps) = search.next() else {
            break;
        };
        let so_far = result.search.len();
        let tried = unless_interrupted(try_rate(&plan, rps, &mut result.search))?;
        result.interrupted = tried.is_none();
        // If the generator cannot reach a rate, the run says nothing about the server.
        let of_rate = &result.search[so_far..];
        let (Some(is_served), false) = (tried, of_rate.iter().any(|run| run.refused.is_some()))
        else {
            break;
        };
        search.take(rps, is_served);
    }
    result.interval = search.interval;
    Ok(result)
}

/// Tries a rate again if it was not served, because a run may coincide with a disturbance of the machine.
fn try_rate(plan: &Plan, rps: f64, runs: &mut Vec<Summary>) -> Result<bool> {
    for _ in 0..2 {
        let number = runs.len() + 1;
        let rate = count(rps.round() as u64);
        step(&format!("capacity, is {rate}/s served? run {number}"));
        let plan = Plan {
            seed: plan.seed + number as u64,
            mode: open_loop(&[rps], plan.duration_ns, true),
            ..plan.clone()
        };
        let run = run_whole(&plan)?;
        let (is_served, is_over) = (is_served(&run), run.refused.is_some());
        runs.push(run);
        if is_served || is_over {
            return Ok(is_served);
        }
    }
    Ok(false)
}

pub fn capacity(arguments: &Capacity) -> Result<u8> {
    let ready = ready(&arguments.target, &arguments.what, None)?;
    let plan = of_what(
        &ready,
        &arguments.what,
        arguments.times.duration,
        arguments.times.warmup,
        arguments.connections,
    )?;
    let result = match arguments.closed {
        true => closed_loops(&plan, arguments.repeats)?,
        false => measure_capacity(&plan, arguments.repeats, arguments.connections)?,
    };
    match arguments.format {
        Format::Json => output::json(&result)?,
        Format::Text if arguments.closed => output::line(&format!(
            "{}: {}",
            printable(&result.url),
            result.describe_closed()
        ))?,
        Format::Text => output::line(&format!(
            "{}: {}; closed loops get {}",
            printable(&result.url),
            result.describe(),
            result.describe_closed()
        ))?,
    }
    Ok(judge(result.all_runs(), result.interrupted))
}

#[cfg(test)]
impl CapacityResult {
    /// A result with a given interval.
    pub fn assumed(interval: Interval, runs: Vec<Summary>, search: Vec<Summary>) -> CapacityResult {
        let spread = || Spread::of([1000.0]).unwrap();
        CapacityResult {
            schema: "latlab.capacity/1",
            url: String::new(),
            rps: spread(),
            bytes_per_second: spread(),
            interval,
            interrupted: false,
            runs,
            search,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(first_rps: f64, capacity: f64) -> (Interval, usize) {
        let mut search = Search::new(first_rps);
        let mut rates = 0;
        while let Some(rps) = search.next().filter(|_| rates < RATES_MAX) {
            search.take(rps, rps <= capacity);
            rates += 1;
        }
        (search.interval, rates)
    }

    proptest! {
        /// Closed loops may get much less than the capacity (few connections), or more (no space to queue).
        #[test]
        fn the_capacity_is_in_the_interval(capacity in 1.0..1e6f64, wrong in 0.2..5.0f64) {
            let (interval, rates) = found(capacity * wrong, capacity);
            let served = interval.served_rps.unwrap();
            let not_served = interval.not_served_rps.unwrap();
            prop_assert!(served <= capacity && capacity < not_served, "{interval:?}");
            prop_assert!(not_served / served <= PRECISION, "{interval:?} after {rates}");
        }
    }

    #[test]
    fn a_good_guess_takes_few_rates() {
        for wrong in [0.96, 0.99, 1.01, 1.04] {
            let (_, rates) = found(1000.0 * wrong, 1000.0);
            assert!(rates <= 4, "{wrong}: {rates}");
        }
    }
}
