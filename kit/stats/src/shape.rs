// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one mean would hide: values that fall into two groups, and values that change in the course of time.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::order::median;

/// With fewer values, chance makes groups and trends: none are found.
pub const VALUES_MIN: usize = 8;
/// Groups and trends smaller than this part of the mean are of no interest.
const RELATIVE_MIN: f64 = 0.02;
/// Two groups have to explain this part of the variance. The best cut of normal values explains 64 % in the
/// long run; of 11 values, one in a hundred exceeds this.
const EXPLAINED_MIN: f64 = 0.92;
/// Each group has at least this part of the values, and no fewer than two: others are outliers.
const GROUP_MIN: f64 = 0.15;
/// Probability of a trend as strong as this one where there is none.
const CHANCE_MAX: f64 = 0.005;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Modes {
    /// Means of both groups.
    pub low: f64,
    pub high: f64,
    /// The part of the values that is in the higher group.
    pub share_high: f64,
}

/// The two groups into which the values fall, if they do. `sorted`: the values in order.
pub fn two_modes(sorted: &[f64]) -> Option<Modes> {
    let n = sorted.len();
    if n < VALUES_MIN {
        return None;
    }
    let sum: f64 = sorted.iter().sum();
    let mean = sum / n as f64;
    let all: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    let fewest = ((n as f64 * GROUP_MIN).ceil() as usize).max(2);
    let mut best: Option<(f64, Modes)> = None;
    let mut below: f64 = sorted[..fewest - 1].iter().sum();
    for cut in fewest..=n - fewest {
        below += sorted[cut - 1];
        let (low, high) = (below / cut as f64, (sum - below) / (n - cut) as f64);
        let between = cut as f64 * (low - mean).powi(2) + (n - cut) as f64 * (high - mean).powi(2);
        let share_high = (n - cut) as f64 / n as f64;
        let modes = Modes {
            low,
            high,
            share_high,
        };
        if best.is_none_or(|(other, _)| between > other) {
            best = Some((between, modes));
        }
    }
    let (between, modes) = best?;
    let is_apart = modes.high - modes.low > RELATIVE_MIN * mean.abs();
    (is_apart && all > 0.0 && between / all >= EXPLAINED_MIN).then_some(modes)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The change from the first value to the last, as a part of their median.
    pub change: f64,
}

/// The trend of values in the order of time, if they have one (Mann and Kendall's test, with the slope of Theil
/// and Sen).
pub fn drift(values: &[f64]) -> Option<Drift> {
    let n = values.len();
    if n < VALUES_MIN {
        return None;
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut rising = 0i64;
    for (early, first) in values.iter().enumerate() {
        for (late, second) in values.iter().enumerate().skip(early + 1) {
            rising += i64::from(second > first) - i64::from(second < first);
            slopes.push((second - first) / (late - early) as f64);
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = n as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let z = (rising.abs() - 1).max(0) as f64 / deviation;
    let chance = 2.0 * (1.0 - Normal::new(0.0, 1.0).ok()?.cdf(z));
    let change = median(&slopes)? * (n - 1.0) / median(&sorted)?;
    (chance < CHANCE_MAX && change.is_finite() && change.abs() > RELATIVE_MIN)
        .then_some(Drift { change })
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn false_alarms(n: usize, found: impl Fn(&[f64]) -> bool) -> usize {
        let mut alarms = 0;
        for seed in 0..1000 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let value = |random: &mut Xoshiro256PlusPlus| {
                100.0 + 10.0 * ((0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0)
            };
            let values: Vec<f64> = (0..n).map(|_| value(&mut random)).collect();
            alarms += usize::from(found(&values));
        }
        alarms
    }

    #[test]
    fn two_groups_are_found_and_one_is_not_taken_for_two() {
        let two = [10.0, 10.1, 10.2, 10.1, 10.0, 14.0, 14.1, 14.2, 14.0];
        let modes = two_modes(&two).expect("two groups");
        assert!((modes.low - 10.08).abs() < 0.01 && (modes.high - 14.075).abs() < 0.01);
        assert!((modes.share_high - 4.0 / 9.0).abs() < 1e-9);
        // One outlier is no group, and groups that differ by 1 % are of no interest.
        assert_eq!(
            two_modes(&[10.0, 10.0, 10.1, 10.1, 10.1, 10.1, 10.2, 10.2, 99.0]),
            None
        );
        assert_eq!(
            two_modes(&[10.0, 10.0, 10.0, 10.0, 10.1, 10.1, 10.1, 10.1]),
            None
        );
        for n in [11, 31] {
            let alarms = false_alarms(n, |values| {
                let mut sorted = values.to_vec();
                sorted.sort_unstable_by(f64::total_cmp);
                two_modes(&sorted).is_some()
            });
            assert!(alarms <= 15, "{alarms} of 1000 with {n} values");
        }
    }

    #[test]
    fn a_trend_is_found_and_noise_is_not_taken_for_one() {
        let rising: Vec<f64> = (0..11).map(|i| 100.0 + f64::from(i)).collect();
        let found = drift(&rising).expect("a trend");
        assert!((found.change - 10.0 / 105.0).abs() < 1e-9);
        assert_eq!(drift(&[5.0; 20]), None);
        let alarms = false_alarms(11, |values| drift(values).is_some());
        assert!(alarms <= 15, "{alarms} of 1000");
    }
}
