// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uncertainty from leaving out a part of the measurements at a time.

/// Blocks that are left out, one at a time, to see how much a figure depends on each (jackknife).
pub const LEFT_OUT: usize = 20;
/// The 97.5 % quantile of Student's distribution with 19 degrees of freedom.
const STUDENT_19: f64 = 2.093;

/// The interval and standard error of a figure, from its values with each of [`LEFT_OUT`] blocks left
/// out.
pub fn jackknife(value: f64, without: &[f64]) -> Option<((f64, f64), f64)> {
    if without.len() != LEFT_OUT {
        return None;
    }
    let n = without.len() as f64;
    let mean = without.iter().sum::<f64>() / n;
    let squares: f64 = without.iter().map(|one| (one - mean).powi(2)).sum();
    let error = ((n - 1.0) / n * squares).sqrt();
    Some((
        (value - STUDENT_19 * error, value + STUDENT_19 * error),
        error,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jackknife_of_means_is_the_standard_error() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / 20.0;
        let without: Vec<f64> = values.iter().map(|v| (mean * 20.0 - v) / 19.0).collect();
        let (_, error) = jackknife(mean, &without).expect("an error");
        // Standard deviation of 0..20 is 5.916; by the root of 20.
        assert!((error - 5.916 / 20f64.sqrt()).abs() < 0.001, "{error}");
    }
}
