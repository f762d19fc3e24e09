// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of sorted values.

/// The index of the percentile among `n` sorted values: the first value that is not exceeded by at least
/// `percent` of them (nearest rank). From 0.
pub fn rank(n: usize, percent: f64) -> usize {
    // Rounding must not make a product such as 99.9 % of 1000 larger than 999.
    let wanted = (n as f64 * percent / 100.0 - 1e-9).ceil().max(1.0) as usize;
    wanted.min(n.max(1)) - 1
}

/// The mean of sorted values without the lowest and the highest `share` of them, rounded down to whole
/// values. `None`: there is no value.
pub fn trimmed_mean(sorted: &[f64], share: f64) -> Option<f64> {
    let cut = (sorted.len() as f64 * share.clamp(0.0, 0.5) + 1e-9) as usize;
    let kept = match sorted.len() > 2 * cut {
        true => &sorted[cut..sorted.len() - cut],
        false => return median(sorted),
    };
    Some(kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The middle value, or the mean of the two in the middle. `None`: there is no value.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let at = sorted.len() / 2;
    let upper = sorted.get(at)?;
    match sorted.len() % 2 {
        0 => Some((sorted[at - 1] + upper) / 2.0),
        _ => Some(*upper),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_extremes_are_left_out() {
        let sorted = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1e9];
        assert_eq!(trimmed_mean(&sorted, 0.1), Some(4.5));
        // A tenth of nine values is less than one value.
        assert_eq!(trimmed_mean(&sorted[..9], 0.1), Some(4.0));
        assert_eq!(trimmed_mean(&[1.0, 9.0], 0.5), Some(5.0));
        assert_eq!(trimmed_mean(&[], 0.1), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn a_trimmed_mean_lies_between_the_values(
            mut values in prop::collection::vec(0f64..1e6, 1..60),
            share in 0f64..0.6,
        ) {
            values.sort_unstable_by(f64::total_cmp);
            let mean = trimmed_mean(&values, share).expect("there are values");
            prop_assert!(values[0] - 1e-6 <= mean && mean <= values[values.len() - 1] + 1e-6);
        }
    }
}
