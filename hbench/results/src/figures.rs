// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of each benchmark: `hbench.summary/1`.

use std::collections::BTreeMap;

use kit_stats::{drift, middle, trimmed_draws, trimmed_mean, two_modes, CONFIDENCE};
use serde::Serialize;

use crate::file::Recorded;
use crate::meta::{Declared, LeftOut, Meta, Sample};

/// The part of the samples that is left out at each end.
pub const TRIMMED: f64 = 0.1;
/// Fixed, so that the same file gives the same figures.
const SEED: u64 = 11;
/// An interval that reaches further from its figure than this part is wide.
pub const HALF_WIDTH_WANTED: f64 = 0.02;
/// A sample that had no CPU for this part of its time was disturbed.
const DISTURBED: f64 = 0.01;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Modes {
    pub low_ns: f64,
    pub high_ns: f64,
    pub share_high: f64,
}

/// The figures of one benchmark. Times are of one operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    pub benchmark: String,
    pub group: String,
    pub operation: String,
    pub samples: usize,
    /// The trimmed mean; with several instances, of the mean of each round.
    pub operation_ns: f64,
    /// 95 %; null if there is one sample.
    pub interval_ns: Option<(f64, f64)>,
    pub min_ns: f64,
    pub max_ns: f64,
    /// Bytes that one operation transfers.
    pub bytes: Option<u64>,
    /// Of all instances together; null if it is no transfer.
    pub bytes_per_second: Option<f64>,
    /// Null if the samples fall into one group, or are fewer than eight.
    pub modes: Option<Modes>,
    /// The change in the course of the run, as a part of the figure; null if there is none, or fewer than eight samples.
    pub drift: Option<f64>,
    /// The part of the samples whose process was ready for 1 % of its time or longer and had no CPU.
    pub disturbed: f64,
    /// The trimmed mean in each draw of the bootstrap.
    #[serde(skip)]
    pub draws: Vec<f64>,
}

impl Figure {
    /// The part of the figure by which its interval reaches to each side.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.interval_ns?;
        Some((high - low) / 2.0 / self.operation_ns.abs().max(1e-12))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary<'a> {
    pub schema: &'static str,
    pub meta: &'a Meta,
    pub figures: Vec<Figure>,
}

pub fn summary(recorded: &Recorded) -> Summary<'_> {
    Summary {
        schema: "hbench.summary/1",
        meta: &recorded.meta,
        figures: figures(recorded),
    }
}

/// In the order of the benchmarks' declarations. Benchmarks without samples have none.
pub fn figures(recorded: &Recorded) -> Vec<Figure> {
    let mut samples: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in &recorded.samples {
        samples.entry(&sample.benchmark).or_default().push(sample);
    }
    let declared = recorded.meta.benchmarks.iter();
    declared
        .filter_map(|declared| figure(declared, samples.get(declared.name.as_str())?))
        .collect()
}

fn figure(declared: &Declared, samples: &[&Sample]) -> Option<Figure> {
    let mut rounds: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        rounds.entry(sample.round).or_default().push(sample);
    }
    let mean = |of: &[&Sample]| {
        let sum: f64 = of.iter().map(|sample| sample.operation_ns).sum();
        sum / of.len() as f64
    };
    let values: Vec<f64> = rounds.values().map(|of| mean(of)).collect();
    let instances = samples.len() as f64 / rounds.len() as f64;
    let mut sorted = values.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let operation_ns = trimmed_mean(&sorted, TRIMMED)?;
    let draws = trimmed_draws(&values, TRIMMED, SEED);
    let bytes = samples.iter().find_map(|sample| sample.bytes);
    let is_disturbed = |sample: &&&Sample| {
        let waited = sample.runqueue_ns.unwrap_or(0) as f64;
        waited > DISTURBED * sample.elapsed_ns
    };
    let disturbed = samples.iter().filter(is_disturbed).count() as f64;
    Some(Figure {
        benchmark: declared.name.clone(),
        group: declared.group.clone(),
        operation: declared.operation.clone(),
        samples: samples.len(),
        operation_ns,
        interval_ns: (!draws.is_empty()).then(|| middle(&draws, CONFIDENCE)),
        min_ns: *sorted.first()?,
        max_ns: *sorted.last()?,
        bytes,
        bytes_per_second: bytes.map(|bytes| instances * bytes as f64 / operation_ns * 1e9),
        modes: two_modes(&sorted).map(|modes| Modes {
            low_ns: modes.low,
            high_ns: modes.high,
            share_high: modes.share_high,
        }),
        drift: drift(&values).map(|drift| drift.change),
        disturbed: disturbed / samples.len() as f64,
        draws,
    })
}

/// What was not measured at all, and what gave a wrong result; each benchmark once.
pub fn without_values(meta: &Meta) -> Vec<&LeftOut> {
    let left_out = meta.left_out.iter();
    left_out
        .filter(|left_out| left_out.round.is_none())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::recorded;

    #[test]
    fn extremes_count_for_nothing_and_are_kept() {
        let values = [
            100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 100.2, 99.8, 100.0, 100.0, 900.0,
        ];
        let result = recorded(&[("a", &values), ("b", &[1.0]), ("memory.read/16K", &[500.0])]);
        let figures = figures(&result);
        assert!((figures[0].operation_ns - 100.1).abs() < 0.1, "{figures:?}");
        assert_eq!(figures[0].max_ns, 900.0);
        assert_eq!(figures[0].samples, 11);
        assert_eq!(figures[1].interval_ns, None);
        // 1000 bytes in 500 ns.
        assert_eq!(figures[2].bytes_per_second, Some(2e9));
    }

    #[test]
    fn all_cpus_together_transfer_the_sum() {
        let mut result = recorded(&[("memory.read/16K", &[500.0, 500.0])]);
        let mut other = result.samples.clone();
        for sample in &mut other {
            sample.instance = 1;
            sample.runqueue_ns = Some(1_000_000);
        }
        result.samples.extend(other);
        let figure = figures(&result).remove(0);
        assert_eq!(figure.operation_ns, 500.0);
        assert_eq!(figure.bytes_per_second, Some(4e9));
        assert_eq!(figure.disturbed, 0.5);
    }

    #[test]
    fn two_modes_and_drift_are_found() {
        let two: Vec<f64> = (0..12)
            .map(|i| if i % 2 == 0 { 100.0 } else { 140.0 })
            .collect();
        let rising: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i)).collect();
        let found = figures(&recorded(&[("two", &two), ("rising", &rising)]));
        let modes = found[0].modes.as_ref().expect("two groups");
        assert_eq!(
            (modes.low_ns, modes.high_ns, modes.share_high),
            (100.0, 140.0, 0.5)
        );
        assert_eq!(found[0].drift, None);
        assert!(found[1].drift.expect("it rises") > 0.1);
    }
}
