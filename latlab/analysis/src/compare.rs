//! Compares runs with a base, with one error rate for the whole table.
//!
//! Of many figures that are compared separately, some differ by chance. The intervals are therefore simultaneous. For
//! each bootstrap draw, the figure that is furthest from its mean over all draws counts, measured in its own standard
//! errors. The half-width of all intervals is the value that this maximum exceeds only in the draws of the error rate.
//! The draws preserve how figures depend on each other: a mean and a 99th percentile move together.

use kit_stats::{deviation, simultaneous, DRAWS};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::intervals::Draws;
use crate::report::Measured;
use crate::stats::PERCENTS;

/// The service inversion has a standard error but no draws; with this seed, some are generated.
const SEED: u64 = 34;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Lower,
    Higher,
    /// The data show no difference.
    None,
    /// Too few requests to decide.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// `mean`, `p5` and so on; `service_inversion`.
    pub figure: &'static str,
    pub base: f64,
    pub value: f64,
    /// The interval of the change: in percent; for the service inversion, as a difference.
    pub change: Option<(f64, f64)>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub base: String,
    pub run: String,
    /// The probability that all intervals of all comparisons contain the true values.
    pub confidence: f64,
    pub differences: Vec<Difference>,
}

const NAMES: [&str; 5] = ["p5", "p50", "p95", "p99", "p99_9"];

/// One figure of a run and of its base.
struct Cell {
    figure: &'static str,
    base: f64,
    value: f64,
    sureness: Option<Sureness>,
}

/// How certain the change is.
enum Sureness {
    /// The logarithm of the ratio in each draw.
    Drawn(Vec<f64>),
    /// Standard error of the difference.
    Error(f64),
}

impl Cell {
    /// The change, on the scale of the draws.
    fn change(&self) -> f64 {
        match self.sureness {
            Some(Sureness::Drawn(_)) => (self.value.max(1e-9) / self.base.max(1e-9)).ln(),
            _ => self.value - self.base,
        }
    }

    fn error(&self) -> f64 {
        match &self.sureness {
            Some(Sureness::Drawn(drawn)) => deviation(drawn).1,
            Some(Sureness::Error(error)) => *error,
            None => 0.0,
        }
    }

    /// `errors`: half-width of the interval in standard errors.
    fn difference(self, errors: f64) -> Difference {
        let (change, room) = (self.change(), errors * self.error());
        let (low, high) = (change - room, change + room);
        let verdict = match self.sureness {
            None => Verdict::Unknown,
            Some(_) if low > 0.0 => Verdict::Higher,
            Some(_) if high < 0.0 => Verdict::Lower,
            Some(_) => Verdict::None,
        };
        let percent = |log: f64| 100.0 * (log.exp() - 1.0);
        Difference {
            figure: self.figure,
            base: self.base,
            value: self.value,
            change: self.sureness.map(|sureness| match sureness {
                Sureness::Drawn(_) => (percent(low), percent(high)),
                Sureness::Error(_) => (low, high),
            }),
            verdict,
        }
    }
}

/// The differences of each of `runs` from `base`. All runs have the same unit.
pub fn compare(base: &Measured, runs: &[Measured], error_rate: f64) -> Vec<Comparison> {
    let tables: Vec<Vec<Cell>> = runs.iter().map(|run| cells(base, run)).collect();
    let errors = simultaneous(standardized(tables.iter().flatten()), error_rate);
    let compared = runs.iter().zip(tables).map(|(run, cells)| Comparison {
        base: base.report.name.clone(),
        run: run.report.name.clone(),
        confidence: 1.0 - error_rate,
        differences: cells
            .into_iter()
            .map(|cell| cell.difference(errors))
            .collect(),
    });
    compared.collect()
}

/// The draws of each cell that has any, standardized.
fn standardized<'a>(
    cells: impl Iterator<Item = &'a Cell> + 'a,
) -> impl Iterator<Item = Vec<f64>> + 'a {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    cells.filter_map(move |cell| match &cell.sureness {
        None => None,
        Some(Sureness::Drawn(drawn)) => Some(kit_stats::standardized(drawn)),
        Some(Sureness::Error(_)) => Some((0..DRAWS).map(|_| normal(&mut random)).collect()),
    })
}

/// From two uniform random numbers (Box-Muller).
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn cells(base: &Measured, run: &Measured) -> Vec<Cell> {
    let draws = base.draws.as_ref().zip(run.draws.as_ref());
    let drawn = |pick: &dyn Fn(&Draws) -> &Vec<f64>| {
        let (base, run) = draws?;
        let pairs = pick(run).iter().zip(pick(base));
        let logs = pairs.map(|(run, base)| (run.max(1e-9) / base.max(1e-9)).ln());
        Some(Sureness::Drawn(logs.collect()))
    };
    let mut cells = vec![Cell {
        figure: "mean",
        base: base.report.latency.mean.0,
        value: run.report.latency.mean.0,
        sureness: drawn(&|draws| &draws.mean),
    }];
    let (before, after) = (base.report.percentiles.all(), run.report.percentiles.all());
    for (at, percent) in PERCENTS.iter().enumerate() {
        // If too few requests are beyond the percentile, resampling says nothing about it.
        let beyond = |measured: &Measured| {
            measured.report.requests as f64 * percent.min(100.0 - percent) / 100.0
        };
        let enough = beyond(base).min(beyond(run)) >= 10.0;
        cells.push(Cell {
            figure: NAMES[at],
            base: before[at].0,
            value: after[at].0,
            sureness: drawn(&|draws| &draws.percentiles[at]).filter(|_| enough),
        });
    }
    let inversions = (base.report.service_inversion).zip(run.report.service_inversion);
    if let Some((before, after)) = inversions {
        let errors = base.inversion_error.zip(run.inversion_error);
        cells.push(Cell {
            figure: "service_inversion",
            base: before,
            value: after,
            sureness: errors.map(|(a, b)| Sureness::Error(a.hypot(b))),
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::draw;

    /// Latencies of a server whose requests wait in one queue. `slower`: the factor by which it is slower.
    fn queue(random: &mut Xoshiro256PlusPlus, slower: f64) -> Vec<u64> {
        let mut waiting: f64 = 0.0;
        let mut latency = |_| {
            let exponential =
                |random: &mut Xoshiro256PlusPlus| -(1.0 - random.random::<f64>()).ln();
            let service = exponential(random);
            waiting = (waiting + service - exponential(random) / 0.5).max(0.0);
            (1e6 * slower * (waiting + service)) as u64
        };
        (0..3000).map(&mut latency).collect()
    }

    /// The draws of the percentiles and the mean, and their values.
    fn drawn(latencies: &[u64]) -> (Draws, [f64; 6]) {
        let mut by_latency: Vec<u32> = (0..latencies.len() as u32).collect();
        by_latency.sort_by_key(|index| latencies[*index as usize]);
        let in_time: Vec<u32> = (0..latencies.len() as u32).collect();
        let sorted: Vec<u64> = by_latency
            .iter()
            .map(|at| latencies[*at as usize])
            .collect();
        let percentiles = crate::stats::percentiles(&sorted).map(|ticks| ticks as f64);
        let [a, b, c, d, e] = percentiles;
        let draws = draw(latencies, &by_latency, &in_time, 1).expect("enough requests");
        (draws, [a, b, c, d, e, crate::stats::mean(&sorted)])
    }

    fn differ(one: &[u64], other: &[u64]) -> bool {
        let ((base, before), (run, after)) = (drawn(one), drawn(other));
        let logs = |run: &[f64], base: &[f64]| {
            let pairs = run.iter().zip(base);
            Some(Sureness::Drawn(
                pairs.map(|(run, base)| (run / base).ln()).collect(),
            ))
        };
        // Without the last percentile: only three requests are beyond it.
        let mut cells: Vec<Cell> = (0..4)
            .map(|at| Cell {
                figure: NAMES[at],
                base: before[at],
                value: after[at],
                sureness: logs(&run.percentiles[at], &base.percentiles[at]),
            })
            .collect();
        cells.push(Cell {
            figure: "mean",
            base: before[5],
            value: after[5],
            sureness: logs(&run.mean, &base.mean),
        });
        let errors = simultaneous(standardized(cells.iter()), 0.05);
        let mut differences = cells
            .into_iter()
            .map(|cell| cell.difference(errors).verdict);
        differences.any(|verdict| verdict != Verdict::None)
    }

    #[test]
    fn equal_runs_differ_as_seldom_as_is_said_and_others_do() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let pairs = 60;
        let mut shown = |slower: f64| {
            let pair = |_: &usize| {
                let one = queue(&mut random, 1.0);
                differ(&one, &queue(&mut random, slower))
            };
            (0..pairs).filter(pair).count()
        };
        // Out of 60 pairs, 3 on average.
        let (equal, slower) = (shown(1.0), shown(1.4));
        assert!(equal <= 8, "{equal} of {pairs} equal pairs differ");
        assert!(slower >= pairs * 9 / 10, "{slower} of {pairs} pairs differ");
    }
}
