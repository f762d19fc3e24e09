// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uncertainty from drawing the measurements with replacement (bootstrap). What follows each other may be
//! alike, so blocks of consecutive measurements are drawn.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::order::trimmed_mean;

/// The part of such intervals that contain the true value, in the long run.
pub const CONFIDENCE: f64 = 0.95;

pub const DRAWS: usize = 1000;

/// With fewer values, each is its own block: a few blocks would not show how the values vary.
const BLOCKS_FROM: usize = 30;

/// The block of each measurement. `order`: the measurements' indices in the order of time.
pub fn blocks(order: &[u32], blocks: usize) -> Vec<u16> {
    let mut block_of = vec![0u16; order.len()];
    for (place, index) in order.iter().enumerate() {
        block_of[*index as usize] = (place * blocks / order.len().max(1)) as u16;
    }
    block_of
}

/// Draws as many blocks as there are, with replacement, [`DRAWS`] times, and calls `each` with how often each
/// block was drawn.
pub fn draw_blocks(count: usize, seed: u64, mut each: impl FnMut(&[u32])) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut weights = vec![0u32; count];
    for _ in 0..DRAWS {
        weights.fill(0);
        for _ in 0..count {
            weights[random.random_range(0..count)] += 1;
        }
        each(&weights);
    }
}

/// The trimmed mean in each draw. `values`: in the order of time. Empty if there are fewer than two.
///
/// A drawn sample varies less than a new sample would, and the fewer values, the less. The draws are spread
/// around the figure to the width that Student's distribution has (Hesterberg's expanded interval).
pub fn trimmed_draws(values: &[f64], share: f64, seed: u64) -> Vec<f64> {
    let n = values.len();
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(figure) = trimmed_mean(&sorted, share).filter(|_| n > 1) else {
        return Vec::new();
    };
    let length = match n < BLOCKS_FROM {
        true => 1,
        false => (n as f64).cbrt() as usize,
    };
    let spread = expansion(n.div_ceil(length));
    let mut drawn = Vec::with_capacity(n);
    let mut figures = Vec::with_capacity(DRAWS);
    draw_blocks(n.div_ceil(length), seed, |weights| {
        drawn.clear();
        for (block, weight) in values.chunks(length).zip(weights) {
            for _ in 0..*weight {
                drawn.extend_from_slice(block);
            }
        }
        drawn.sort_unstable_by(f64::total_cmp);
        if let Some(mean) = trimmed_mean(&drawn, share) {
            figures.push(figure + (mean - figure) * spread);
        }
    });
    figures
}

fn expansion(n: usize) -> f64 {
    let (free, tail) = ((n - 1) as f64, (1.0 - CONFIDENCE) / 2.0);
    let student = StudentsT::new(0.0, 1.0, free).map(|of| of.inverse_cdf(1.0 - tail));
    let normal = Normal::new(0.0, 1.0).map(|of| of.inverse_cdf(1.0 - tail));
    match (student, normal) {
        (Ok(student), Ok(normal)) => student / normal * (n as f64 / free).sqrt(),
        _ => 1.0,
    }
}

/// The bounds of the middle `part` of the values.
pub fn middle(values: &[f64], part: f64) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - part) / 2.0;
    let at = |part: f64| {
        let place = (part * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    };
    (at(tail), at(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of uniform values is nearly normal.
    fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    fn covered(n: usize, next: impl Fn(&mut Xoshiro256PlusPlus) -> f64, truth: f64) -> usize {
        let mut covered = 0;
        for seed in 0..400 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let values: Vec<f64> = (0..n).map(|_| next(&mut random)).collect();
            let (low, high) = middle(&trimmed_draws(&values, 0.1, 1), CONFIDENCE);
            covered += usize::from(low <= truth && truth <= high);
        }
        covered
    }

    #[test]
    fn intervals_cover_as_often_as_they_claim() {
        for n in [7, 11, 40] {
            let found = covered(n, |random| 100.0 + normal(random), 100.0);
            assert!((366..=396).contains(&found), "{n}: {found} of 400");
        }
    }

    #[test]
    fn one_value_has_no_interval() {
        assert!(trimmed_draws(&[1.0], 0.1, 1).is_empty());
        assert!(trimmed_draws(&[], 0.1, 1).is_empty());
        let (low, high) = middle(&trimmed_draws(&[3.0; 9], 0.1, 1), CONFIDENCE);
        assert_eq!((low, high), (3.0, 3.0));
    }

    #[test]
    fn values_that_are_slow_together_make_the_interval_wider() {
        let width = |values: &[f64]| {
            let (low, high) = middle(&trimmed_draws(values, 0.1, 1), CONFIDENCE);
            high - low
        };
        let together: Vec<f64> = (0..60).map(|i| f64::from(i / 5 % 2)).collect();
        let mixed: Vec<f64> = (0..60).map(|i| f64::from(i % 2)).collect();
        assert!(width(&together) > 1.3 * width(&mixed));
    }
}
