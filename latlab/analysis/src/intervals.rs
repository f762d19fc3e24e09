//! The figures' uncertainty: 95 % intervals.
//!
//! There are two causes of uncertainty. First, few requests decide a high percentile; the binomial
//! distribution gives that interval, assuming only that requests are independent. Second, they are not
//! independent: requests that wait in the same queue are slow together. So the run is cut into blocks of
//! consecutive requests, which are drawn with replacement (bootstrap). The wider bound of both is used.

use kit_stats::{blocks, draw_blocks, middle, rank, CONFIDENCE};
use statrs::distribution::{Binomial, DiscreteCDF};

use crate::stats::{percentiles, PERCENTS};

/// Blocks of a run, at most.
const BLOCKS: usize = 50;
/// Smaller blocks would not contain whole queues.
const BLOCK_MIN: usize = 20;
/// Sorted values are divided into this many cells, with 0.02 % of all values in each.
const CELLS: usize = 4096;

/// Lower and upper bound. `None`: there are too few requests.
pub type Interval = (Option<f64>, Option<f64>);

/// A run's figures in each draw: the percentiles of `PERCENTS`, and the mean.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    pub percentiles: [Vec<f64>; 5],
    pub mean: Vec<f64>,
}

/// Draws blocks. `by_latency`: indices, fastest first. `None` if there are too few requests.
pub fn draw(latencies: &[u64], by_latency: &[u32], in_time: &[u32], seed: u64) -> Option<Draws> {
    let n = latencies.len();
    let count = (n / BLOCK_MIN).min(BLOCKS);
    if count < 10 {
        return None;
    }
    let block_of = blocks(in_time, count);
    let cells = n.min(CELLS);
    // Where each cell begins.
    let begin = |cell: usize| n * cell / cells;
    let mut table = vec![0u32; cells * count];
    let mut sums = vec![(0u128, 0u64); count];
    for cell in 0..cells {
        for index in &by_latency[begin(cell)..begin(cell + 1)] {
            let block = usize::from(block_of[*index as usize]);
            table[cell * count + block] += 1;
            sums[block].0 += u128::from(latencies[*index as usize]);
            sums[block].1 += 1;
        }
    }
    let mut draws = Draws::default();
    let mut drawn = vec![0u64; cells];
    draw_blocks(count, seed, |weights| {
        let mut total = 0u64;
        for (cell, row) in table.chunks_exact(count).enumerate() {
            let weighted = row
                .iter()
                .zip(weights)
                .map(|(n, weight)| n * weight)
                .sum::<u32>();
            drawn[cell] = u64::from(weighted);
            total += drawn[cell];
        }
        let mut sum = 0.0;
        for ((of_block, _), weight) in sums.iter().zip(weights) {
            sum += *of_block as f64 * f64::from(*weight);
        }
        draws.mean.push(sum / total.max(1) as f64);
        let (mut cell, mut before) = (0, 0u64);
        for (percent, values) in PERCENTS.iter().zip(&mut draws.percentiles) {
            let wanted = rank(total as usize, *percent) as u64;
            while cell + 1 < cells && before + drawn[cell] <= wanted {
                before += drawn[cell];
                cell += 1;
            }
            let (from, to) = (begin(cell), begin(cell + 1));
            let inside = (wanted.saturating_sub(before)) as f64 / drawn[cell].max(1) as f64;
            let place = (from + (inside * (to - from) as f64) as usize).min(to - 1);
            values.push(latencies[by_latency[place] as usize] as f64);
        }
    });
    Some(draws)
}

/// Intervals of the percentiles. `sorted`: the latencies in order.
pub fn of_percentiles(sorted: &[u64], draws: Option<&Draws>) -> [Interval; 5] {
    let mut at = 0;
    PERCENTS.map(|percent| {
        let mut interval = binomial(sorted, percent / 100.0);
        if let Some(draws) = draws {
            interval = wider(interval, middle(&draws.percentiles[at], CONFIDENCE));
        }
        at += 1;
        interval
    })
}

/// The percentiles of [`PERCENTS`] with their intervals. `latencies`: in the order of time.
pub fn bounded_percentiles(latencies: &[u64]) -> [(u64, Interval); 5] {
    let in_time: Vec<u32> = (0..latencies.len() as u32).collect();
    let mut by_latency = in_time.clone();
    by_latency.sort_by_key(|index| latencies[*index as usize]);
    let sorted: Vec<u64> = by_latency.iter().map(|i| latencies[*i as usize]).collect();
    let draws = draw(latencies, &by_latency, &in_time, 1);
    let bounds = of_percentiles(&sorted, draws.as_ref());
    let values = percentiles(&sorted);
    std::array::from_fn(|at| (values[at], bounds[at]))
}

/// Interval of the mean.
pub fn of_mean(draws: Option<&Draws>) -> Interval {
    match draws {
        Some(draws) => {
            let (low, high) = middle(&draws.mean, CONFIDENCE);
            (Some(low), Some(high))
        }
        None => (None, None),
    }
}

/// The order statistics that bound the percentile, if requests are independent.
fn binomial(sorted: &[u64], part: f64) -> Interval {
    let n = sorted.len();
    let Ok(distribution) = Binomial::new(part, n as u64) else {
        return (None, None);
    };
    let tail = (1.0 - CONFIDENCE) / 2.0;
    // The lowest and the highest number of requests below the percentile.
    let least = distribution.inverse_cdf(tail) as usize;
    let most = distribution.inverse_cdf(1.0 - tail) as usize;
    let at = |place: Option<usize>| place.and_then(|p| sorted.get(p)).map(|value| *value as f64);
    (at(least.checked_sub(1)), at(Some(most)))
}

fn wider((low, high): Interval, (other_low, other_high): (f64, f64)) -> Interval {
    (
        low.map(|low| low.min(other_low)),
        high.map(|high| high.max(other_high)),
    )
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn order(latencies: &[u64]) -> (Vec<u32>, Vec<u64>) {
        let mut order: Vec<u32> = (0..latencies.len() as u32).collect();
        order.sort_by_key(|index| latencies[*index as usize]);
        let sorted = order.iter().map(|i| latencies[*i as usize]).collect();
        (order, sorted)
    }

    #[test]
    fn too_few_requests_have_no_upper_bound_of_a_high_percentile() {
        let sorted: Vec<u64> = (0..100).collect();
        let found = of_percentiles(&sorted, None);
        let (low, high) = found[1];
        // 95 % of a binomial distribution of 100 halves: 40 to 60.
        assert_eq!((low, high), (Some(39.0), Some(60.0)));
        assert_eq!(found[4].1, None);
        assert_eq!(binomial(&[], 0.5), (None, None));
    }

    #[test]
    fn intervals_cover_the_true_median_of_independent_requests() {
        let mut covered = 0;
        for seed in 0..100 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let latencies: Vec<u64> = (0..2000)
                .map(|_| random.random_range(0..1_000_000))
                .collect();
            let (order, sorted) = order(&latencies);
            let in_time: Vec<u32> = (0..2000).collect();
            let draws = draw(&latencies, &order, &in_time, 1).expect("enough");
            let (low, high) = of_percentiles(&sorted, Some(&draws))[1];
            covered += u32::from(low <= Some(500_000.0) && high >= Some(500_000.0));
            let (low, high) = of_mean(Some(&draws));
            let width = high.expect("a bound") - low.expect("a bound");
            // Twice 1.96 standard errors of a mean of 2000.
            assert!((width / 25_300.0 - 1.0).abs() < 0.4, "{width}");
        }
        assert!(covered >= 92, "{covered}");
    }

    #[test]
    fn requests_that_are_slow_together_make_the_interval_wider() {
        let together: Vec<u64> = (0..4000)
            .map(|i| if i / 400 % 2 == 0 { 10 } else { 90 })
            .collect();
        let mixed: Vec<u64> = (0..4000)
            .map(|i| if i % 2 == 0 { 10 } else { 90 })
            .collect();
        let width = |latencies: &[u64]| {
            let (order, _) = order(latencies);
            let in_time: Vec<u32> = (0..4000).collect();
            let draws = draw(latencies, &order, &in_time, 1).expect("enough");
            let (low, high) = middle(&draws.mean, CONFIDENCE);
            high - low
        };
        assert!(width(&together) > 10.0 && width(&mixed) < 1.0);
    }
}
