// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of many figures with one error rate for all of them. Of many figures that are compared separately,
//! some differ by chance.

/// Mean and standard deviation.
pub fn deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / n).sqrt())
}

/// How far each value is from the mean, in standard deviations. Empty if they do not vary.
pub fn standardized(values: &[f64]) -> Vec<f64> {
    let (mean, deviation) = deviation(values);
    let apart = |value: &f64| (value - mean) / deviation;
    match deviation > 0.0 {
        true => values.iter().map(apart).collect(),
        false => Vec::new(),
    }
}

/// The number of standard errors within which all figures are simultaneously, except in a part `error_rate` of the
/// draws. `figures`: the standardized draws of each figure. In each draw, the figure that is furthest from its mean
/// counts, so figures that move together are not counted twice.
pub fn simultaneous(figures: impl Iterator<Item = Vec<f64>>, error_rate: f64) -> f64 {
    let mut furthest: Vec<f64> = Vec::new();
    for figure in figures {
        if furthest.len() < figure.len() {
            furthest.resize(figure.len(), 0.0);
        }
        for (far, errors) in furthest.iter_mut().zip(figure) {
            *far = far.max(errors.abs());
        }
    }
    furthest.sort_by(f64::total_cmp);
    let within = ((1.0 - error_rate) * furthest.len() as f64).ceil() as usize;
    furthest
        .get(within.saturating_sub(1))
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn more_figures_need_more_room() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut normal = || {
            let values: Vec<f64> = (0..1000)
                .map(|_| (0..12).map(|_| random.random::<f64>()).sum::<f64>())
                .collect();
            standardized(&values)
        };
        let one = simultaneous(std::iter::once(normal()), 0.05);
        let many = simultaneous((0..100).map(|_| normal()), 0.05);
        assert!((1.8..2.1).contains(&one), "{one}");
        assert!((3.1..3.7).contains(&many), "{many}");
    }

    #[test]
    fn a_figure_that_does_not_vary_does_not_count() {
        assert_eq!(standardized(&[2.0; 5]), Vec::<f64>::new());
        assert_eq!(simultaneous(std::iter::empty(), 0.05), 0.0);
    }
}
