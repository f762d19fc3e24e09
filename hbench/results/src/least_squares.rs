// SPDX-License-Identifier: MIT OR Apache-2.0
//! Least squares whose solution has no negative part (Lawson and Hanson's active sets).

/// Below this part of the largest one, a gradient is rounding.
const ROUNDING: f64 = 1e-10;

/// The `x >= 0` for which `rows * x` is closest to `wanted`. Each row has as many columns as there are unknowns.
///
/// `None`: the rows do not determine it.
pub fn non_negative(rows: &[Vec<f64>], wanted: &[f64], columns: usize) -> Option<Vec<f64>> {
    let mut x = vec![0.0; columns];
    let mut is_free = vec![false; columns];
    // A column that was freed stays so or is fixed again; each set is seen once.
    for _ in 0..(1usize << columns.min(20)) {
        let slopes = slopes(rows, wanted, &x);
        let largest = slopes
            .iter()
            .fold(0.0f64, |most, slope| most.max(slope.abs()));
        let steepest = (0..columns)
            .filter(|column| !is_free[*column] && slopes[*column] > ROUNDING * largest.max(1e-300))
            .max_by(|one, other| slopes[*one].total_cmp(&slopes[*other]));
        let Some(next) = steepest else {
            return x.iter().all(|value| value.is_finite()).then_some(x);
        };
        is_free[next] = true;
        loop {
            let free: Vec<usize> = (0..columns).filter(|column| is_free[*column]).collect();
            let solved = solve(rows, wanted, &free)?;
            let negative = free.iter().zip(&solved).filter(|(_, value)| **value <= 0.0);
            // How far x can go to the solution before a part of it is zero.
            let reach = negative
                .map(|(column, value)| x[*column] / (x[*column] - value))
                .fold(1.0f64, f64::min);
            for (column, value) in free.iter().zip(&solved) {
                x[*column] += reach * (value - x[*column]);
                if reach < 1.0 && x[*column] <= 1e-14 {
                    x[*column] = 0.0;
                    is_free[*column] = false;
                }
            }
            if reach >= 1.0 {
                break;
            }
        }
    }
    None
}

/// Of half of the squared error, downwards.
fn slopes(rows: &[Vec<f64>], wanted: &[f64], x: &[f64]) -> Vec<f64> {
    let mut slopes = vec![0.0; x.len()];
    for (row, wanted) in rows.iter().zip(wanted) {
        let error = wanted - row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
        for (slope, a) in slopes.iter_mut().zip(row) {
            *slope += a * error;
        }
    }
    slopes
}

/// Least squares over some columns, by the normal equations: there are few columns.
fn solve(rows: &[Vec<f64>], wanted: &[f64], columns: &[usize]) -> Option<Vec<f64>> {
    let n = columns.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for (row, wanted) in rows.iter().zip(wanted) {
        for (i, one) in columns.iter().enumerate() {
            for (j, other) in columns.iter().enumerate() {
                matrix[i][j] += row[*one] * row[*other];
            }
            matrix[i][n] += row[*one] * wanted;
        }
    }
    let scale = (0..n).map(|i| matrix[i][i]).fold(0.0f64, f64::max);
    for i in 0..n {
        let pivot = (i..n)
            .max_by(|one, other| matrix[*one][i].abs().total_cmp(&matrix[*other][i].abs()))?;
        matrix.swap(i, pivot);
        if matrix[i][i].abs() <= scale * 1e-12 {
            return None;
        }
        for below in i + 1..n {
            let factor = matrix[below][i] / matrix[i][i];
            let (upper, lower) = matrix.split_at_mut(below);
            for (value, above) in lower[0].iter_mut().zip(&upper[i]).skip(i) {
                *value -= factor * above;
            }
        }
    }
    let mut solved = vec![0.0; n];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| matrix[i][j] * solved[j]).sum();
        solved[i] = (matrix[i][n] - known) / matrix[i][i];
    }
    Some(solved)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(rows: &[Vec<f64>], wanted: &[f64], x: &[f64]) -> f64 {
        let of = |(row, wanted): (&Vec<f64>, &f64)| {
            let sum: f64 = row.iter().zip(x).map(|(a, x)| a * x).sum();
            (wanted - sum).powi(2)
        };
        rows.iter().zip(wanted).map(of).sum()
    }

    #[test]
    fn what_fits_exactly_is_found_and_what_would_be_negative_is_zero() {
        let rows = vec![vec![1.0, 2.0], vec![3.0, 1.0], vec![1.0, 1.0]];
        let found = non_negative(&rows, &[8.0, 9.0, 5.0], 2).expect("it is determined");
        assert!(
            (found[0] - 2.0).abs() < 1e-9 && (found[1] - 3.0).abs() < 1e-9,
            "{found:?}"
        );
        let found = non_negative(&rows, &[-1.0, 7.0, 1.0], 2).expect("it is determined");
        assert_eq!(found[1], 0.0);
        assert!((found[0] - 21.0 / 11.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn equal_columns_are_not_determined() {
        let rows = vec![vec![1.0, 1.0], vec![2.0, 2.0]];
        let found = non_negative(&rows, &[1.0, 2.0], 2);
        // One of them alone explains everything.
        assert!(found.is_none_or(|found| (found[0] + found[1] - 1.0).abs() < 1e-9));
    }

    proptest! {
        #[test]
        fn no_set_of_columns_is_closer(
            rows in prop::collection::vec(prop::collection::vec(0.0f64..10.0, 3), 5..9),
            wanted in prop::collection::vec(-5.0f64..20.0, 9),
        ) {
            let wanted = &wanted[..rows.len()];
            if let Some(found) = non_negative(&rows, wanted, 3) {
                prop_assert!(found.iter().all(|x| *x >= 0.0));
                let own = error(&rows, wanted, &found);
                for set in 0..8usize {
                    let columns: Vec<usize> = (0..3).filter(|column| set >> column & 1 == 1).collect();
                    let Some(solved) = solve(&rows, wanted, &columns) else { continue };
                    if solved.iter().all(|x| *x >= 0.0) {
                        let mut x = vec![0.0; 3];
                        columns.iter().zip(&solved).for_each(|(column, value)| x[*column] = *value);
                        prop_assert!(own <= error(&rows, wanted, &x) * (1.0 + 1e-6) + 1e-6);
                    }
                }
            }
        }
    }
}
