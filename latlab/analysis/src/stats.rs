//! Percentiles, means and distributions.

use kit_stats::rank;
use serde::Serialize;

use crate::number::Number;

/// The percentiles that are reported.
pub const PERCENTS: [f64; 5] = [5.0, 50.0, 95.0, 99.0, 99.9];

/// Points of a drawn distribution, approximately.
const POINTS: usize = 400;

/// A value for each of [`PERCENTS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles<T> {
    pub p5: T,
    pub p50: T,
    pub p95: T,
    pub p99: T,
    pub p99_9: T,
}

impl<T: Copy> Percentiles<T> {
    pub fn from(values: [T; 5]) -> Percentiles<T> {
        let [p5, p50, p95, p99, p99_9] = values;
        Percentiles {
            p5,
            p50,
            p95,
            p99,
            p99_9,
        }
    }

    pub fn all(&self) -> [T; 5] {
        [self.p5, self.p50, self.p95, self.p99, self.p99_9]
    }
}

/// `sorted`: the values in order.
pub fn percentiles(sorted: &[u64]) -> [u64; 5] {
    PERCENTS.map(|percent| {
        sorted
            .get(rank(sorted.len(), percent))
            .copied()
            .unwrap_or(0)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    pub mean: Number,
    pub standard_deviation: Number,
    pub min: Number,
    pub max: Number,
}

impl Latency {
    /// `sorted`: the values in order. `unit`: ticks per unit.
    pub fn of(sorted: &[u64], unit: f64) -> Latency {
        let n = sorted.len().max(1) as f64;
        let mean = mean(sorted);
        let squares: f64 = sorted.iter().map(|v| (*v as f64 - mean).powi(2)).sum();
        let at = |value: Option<&u64>| Number(value.copied().unwrap_or(0) as f64 / unit);
        Latency {
            mean: Number(mean / unit),
            standard_deviation: Number((squares / n).sqrt() / unit),
            min: at(sorted.first()),
            max: at(sorted.last()),
        }
    }
}

pub fn mean(values: &[u64]) -> f64 {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    sum as f64 / values.len().max(1) as f64
}

/// `(value, part of all values that do not exceed it)`: points evenly spaced over the values, and denser
/// towards both ends.
pub fn cdf(sorted: &[u64], unit: f64) -> Vec<(Number, f64)> {
    let n = sorted.len();
    let mut ranks: Vec<usize> = Vec::new();
    if n <= POINTS {
        ranks.extend(0..n);
    } else {
        ranks.extend((0..=POINTS / 2).map(|at| (n - 1) * at / (POINTS / 2)));
        // Each step is the same part of the remaining values.
        let mut left = n as f64 / 2.0;
        while left >= 1.0 {
            ranks.push(n - left as usize);
            ranks.push(left as usize - 1);
            left *= 0.87;
        }
        ranks.sort_unstable();
        ranks.dedup();
    }
    let mut points: Vec<(Number, f64)> = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let value = sorted[rank];
        let part = sorted.partition_point(|other| *other <= value) as f64 / n as f64;
        let value = Number(value as f64 / unit);
        if points.last().is_none_or(|last| last.0 != value) {
            points.push((value, part));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(percentiles(&values), [50, 500, 950, 990, 999]);
        assert_eq!(percentiles(&[7]), [7; 5]);
        assert_eq!(percentiles(&[1, 2]), [1, 1, 2, 2, 2]);
        assert_eq!(percentiles(&[]), [0; 5]);
    }

    #[test]
    fn the_mean_does_not_overflow() {
        assert_eq!(mean(&[u64::MAX, u64::MAX]), u64::MAX as f64);
        let latency = Latency::of(&[1, 3], 1.0);
        assert_eq!((latency.mean.0, latency.standard_deviation.0), (2.0, 1.0));
    }

    proptest! {
        #[test]
        fn a_percentile_has_enough_below_it(mut values in prop::collection::vec(0u64..100, 1..300)) {
            values.sort_unstable();
            for (percent, value) in PERCENTS.iter().zip(percentiles(&values)) {
                let not_above = values.iter().filter(|other| **other <= value).count() as f64;
                let below = values.iter().filter(|other| **other < value).count() as f64;
                let wanted = values.len() as f64 * percent / 100.0;
                prop_assert!(not_above >= wanted - 1e-6 && below < wanted);
            }
        }

        #[test]
        fn a_distribution_rises_to_one(mut values in prop::collection::vec(0u64..5000, 1..3000)) {
            values.sort_unstable();
            let points = cdf(&values, 1.0);
            prop_assert!(points.len() <= 2 * POINTS);
            prop_assert!(points.windows(2).all(|pair| pair[0].0 .0 < pair[1].0 .0 && pair[0].1 < pair[1].1));
            prop_assert_eq!(points[points.len() - 1].1, 1.0);
            for (value, part) in points {
                let exact = values.iter().filter(|v| **v as f64 <= value.0).count() as f64 / values.len() as f64;
                prop_assert_eq!(part, exact);
            }
        }
    }
}
