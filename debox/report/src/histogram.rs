//! A histogram of times. Buckets grow with the time, 32 for each doubling, so a quantile is at most
//! 3 % off.

/// log2 of the number of buckets for each doubling.
const FINE: u32 = 5;
const BUCKETS: usize = ((64 - FINE + 1) << FINE) as usize;

#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            squares: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < 1 << FINE {
        return value as usize;
    }
    let doubling = 63 - value.leading_zeros();
    let fine = (value >> (doubling - FINE)) & ((1 << FINE) - 1);
    (((doubling - FINE + 1) as usize) << FINE) + fine as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (row, fine) = (bucket >> FINE, (bucket & ((1 << FINE) - 1)) as u64);
    if row == 0 {
        return fine;
    }
    let width = row as u32 - 1;
    (((1 << FINE) + fine) << width) + ((1u64 << width) >> 1)
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let value = u128::from(value);
        self.sum += value;
        self.squares = self.squares.saturating_add(value * value);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// 0 without values, as are the figures below.
    pub fn min(&self) -> u64 {
        self.min.min(self.max)
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.total.max(1) as f64
    }

    /// The standard deviation.
    pub fn deviation(&self) -> f64 {
        // In integers, as both terms are large and may be nearly equal.
        let count = u128::from(self.total.max(1));
        let spread =
            (self.squares.saturating_mul(count)).saturating_sub(self.sum.saturating_mul(self.sum));
        (spread as f64).sqrt() / count as f64
    }

    /// The smallest value that is not exceeded by `part` of all values; 0 without values.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = ((part * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return middle(index).min(self.max);
            }
        }
        0
    }

    /// `(value, part of all values that do not exceed it)` for each bucket in use, at most `most`
    /// points.
    pub fn cdf(&self, most: usize) -> Vec<(u64, f64)> {
        let used = self.counts.iter().filter(|count| **count > 0).count();
        let every = used.div_ceil(most.max(1)).max(1);
        let mut points = Vec::new();
        let (mut seen, mut index_used) = (0, 0);
        for (index, count) in self.counts.iter().enumerate() {
            if *count == 0 {
                continue;
            }
            seen += count;
            index_used += 1;
            if index_used % every == 0 || index_used == used || index_used == 1 {
                let value = middle(index).min(self.max);
                points.push((value, seen as f64 / self.total as f64));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_exact() {
        let mut one = Histogram::default();
        assert_eq!((one.min(), one.mean(), one.deviation()), (0, 0.0, 0.0));
        let mut other = Histogram::default();
        let far = 1_000_000_000_000;
        [2, 4, 4, 4].iter().for_each(|value| one.add(far + value));
        [5, 5, 7, 9].iter().for_each(|value| other.add(far + value));
        one.merge(&other);
        assert_eq!(
            (one.min(), one.max(), one.sum()),
            (far + 2, far + 9, 8 * far + 40)
        );
        assert_eq!((one.mean(), one.deviation()), ((far + 5) as f64, 2.0));
    }
    use proptest::prelude::*;

    #[test]
    fn the_last_bucket_is_there() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(0), 0);
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_three_percent_off(
            mut values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0u32..64).prop_map(move |s| v >> s)), 1..300),
            part in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.add(*value);
            }
            values.sort_unstable();
            let rank = ((part * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let read = histogram.quantile(part) as f64;
            prop_assert!((read - exact).abs() <= exact * 0.032 + 1.0, "{read} for {exact}");
            prop_assert_eq!(histogram.quantile(1.0).max(histogram.max()), *values.last().expect("one"));
        }

        #[test]
        fn a_cdf_rises_to_one(values in prop::collection::vec(any::<u64>(), 1..300), most in 2usize..50) {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.add(*value);
            }
            let points = histogram.cdf(most);
            prop_assert!(points.len() <= most + 2);
            prop_assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
            prop_assert_eq!(points.last().expect("a point").1, 1.0);
        }
    }
}
