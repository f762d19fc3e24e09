//! Decides which rows of a table of pairs differ, with one error rate for the whole table.
//!
//! If two servers are equal, each repeat's ratio is as likely as its inverse: the sign of its logarithm can be
//! flipped. All combinations of flipped repeats, applied to all rows alike, are then equally likely. The p-value is
//! the part of them in which the most extreme row is at least as extreme as the observed one (Westfall and Young's
//! step-down maxima, 1993). This needs no assumption about the distribution of the ratios, nor about how the rows
//! depend on each other, as a mean and a 99th percentile do.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// With more combinations than this, that many are drawn at random.
const FLIPS: u64 = 1 << 15;
/// Fixed, so that the same table gives the same figures.
const SEED: u64 = 20_050_601;
/// Summation in another order may differ by less than this.
const ROUNDING: f64 = 1e-9;

/// The fewest repeats with which a table can show a difference at all.
pub fn least_repeats(error_rate: f64) -> u32 {
    // In the best case, only two combinations are as extreme: no flips, and all flips.
    (1..63)
        .find(|repeats| 2.0 / f64::from(*repeats).exp2() <= error_rate)
        .unwrap_or(63)
}

/// How far the repeats agree, from 0 to 1. Flipping all signs does not change it.
fn agreement(row: &[Option<f64>], flipped: u64) -> f64 {
    let (mut sum, mut squares, mut n) = (0.0, 0.0, 0.0);
    for (repeat, value) in row.iter().enumerate() {
        if let Some(value) = value {
            sum += if flipped >> (repeat % 64) & 1 == 1 {
                -value
            } else {
                *value
            };
            squares += value * value;
            n += 1.0;
        }
    }
    if squares > 0.0 {
        sum.abs() / f64::sqrt(n * squares)
    } else {
        0.0
    }
}

/// For each row, the smallest error rate of the whole table at which it differs. `rows`: the logarithm of the ratio
/// for each repeat. Repeats that are 64 apart are flipped together.
pub fn adjusted_p_values(rows: &[Vec<Option<f64>>]) -> Vec<f64> {
    let repeats = rows.iter().map(Vec::len).max().unwrap_or(0);
    let seen: Vec<f64> = rows.iter().map(|row| agreement(row, 0)).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| seen[*b].total_cmp(&seen[*a]));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    // The last repeat's sign is never flipped, because flipping all others is equivalent.
    let all = 1u64.checked_shl(repeats.saturating_sub(1) as u32);
    let all = all.filter(|all| *all <= FLIPS);
    let mut as_striking = vec![0u64; rows.len()];
    let count = all.unwrap_or(FLIPS);
    for number in 0..count {
        let flipped = match (all, number) {
            // The observed combination is one of them.
            (Some(_), _) | (None, 0) => number,
            (None, _) => random.random(),
        };
        // From the least extreme row on: the maximum of each row and all less extreme ones.
        let mut most: f64 = 0.0;
        for row in order.iter().rev() {
            most = most.max(agreement(&rows[*row], flipped));
            as_striking[*row] += u64::from(most >= seen[*row] - ROUNDING);
        }
    }
    let mut p_values = vec![1.0; rows.len()];
    let mut least: f64 = 0.0;
    for row in order {
        // A row's p-value is not smaller than that of a more extreme row.
        least = least.max(as_striking[row] as f64 / count as f64);
        p_values[row] = least;
    }
    p_values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn the_clearest_table_has_the_p_value_of_one_pair_of_flips() {
        for repeats in 2..10 {
            let p = adjusted_p_values(&[some(&vec![0.7; repeats])]);
            assert_eq!(p, [2.0 / f64::exp2(repeats as f64)], "{repeats}");
        }
        let needed = [(0.5, 2), (0.05, 6), (0.04, 6), (0.03, 7), (0.01, 8)];
        for (rate, repeats) in needed {
            assert_eq!(least_repeats(rate), repeats, "{rate}");
        }
    }

    /// Fisher's exact test for one row, by hand: of the 8 sums of ±1 ±2 ±3, two are at least as far from 0 as 6,
    /// and four as far as 4.
    #[test]
    fn one_row_is_the_exact_test() {
        assert_eq!(adjusted_p_values(&[some(&[1.0, 2.0, 3.0])]), [0.25]);
        assert_eq!(adjusted_p_values(&[some(&[-1.0, 2.0, 3.0])]), [0.5]);
        assert_eq!(adjusted_p_values(&[some(&[0.0, 0.0])]), [1.0]);
        assert_eq!(adjusted_p_values(&[]), [0.0; 0]);
    }

    #[test]
    fn a_clear_row_is_found_among_unclear_ones() {
        let clear = some(&[0.70, 0.69, 0.71, 0.70, 0.68, 0.70, 0.72, 0.69]);
        let unclear = some(&[0.1, -0.2, 0.05, -0.08, 0.1, 0.02, -0.1, 0.04]);
        let missing = vec![None; 8];
        let p = adjusted_p_values(&[unclear, clear.clone(), missing]);
        assert!(p[1] <= 0.01 && p[0] > 0.2 && p[2] == 1.0, "{p:?}");
        // With more repeats, combinations are drawn at random.
        let p = adjusted_p_values(&[clear.repeat(3)]);
        assert!(p[0] < 1e-3, "{p:?}");
    }

    /// Equal servers with skewed, heavy-tailed noise that the rows share: at most 5 % of the tables show a
    /// difference.
    #[test]
    fn tables_of_equal_servers_show_nothing_in_19_of_20() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut tail = || (1.0 - random.random::<f64>()).powf(-1.0 / 1.5);
        let tables = 3000;
        let mut any = 0;
        for _ in 0..tables {
            let mut rows = vec![Vec::new(); 5];
            for _ in 0..8 {
                let (a, b) = (tail(), tail());
                for row in &mut rows {
                    let (a, b) = (a + 0.3 * tail(), b + 0.3 * tail());
                    row.push(Some(f64::ln(b / a)));
                }
            }
            any += u32::from(adjusted_p_values(&rows).iter().any(|p| *p <= 0.05));
        }
        let share = f64::from(any) / f64::from(tables);
        // Four standard errors.
        assert!((0.02..0.066).contains(&share), "{share}");
    }
}
