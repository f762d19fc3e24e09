//! Whether a call gets more expensive as the program runs.
//!
//! The invocations are cut into bins of equal size. The median of each bin counts, so that a few slow calls
//! do not make a trend. A trend is reported if the medians rise in nearly every bin (Spearman's rank
//! correlation with the order is at least [`RHO_MIN`]) and the line through them (Theil-Sen: the median of
//! the slopes of all pairs) rises from its first to its last bin by at least [`GROWTH_MIN`] and
//! [`GROWTH_NS_MIN`]. Of 32 bins without any trend, one in a hundred thousand has such a rank correlation; a
//! constant cost has no growth.
//!
//! A program that first looks for files and later reads them makes two kinds of `openat`, neither of which
//! grows. So if the invocations of one kind (made from the same place, with the same error) are enough for a
//! trend, one of these kinds has to grow by itself.

use std::collections::BTreeMap;

use crate::segments::{Kind, Point};

pub const BINS: usize = 32;
/// Fewer invocations are not checked for a trend.
pub const INVOCATIONS_MIN: u64 = 256;
pub const RHO_MIN: f64 = 0.75;
pub const GROWTH_MIN: f64 = 1.3;
pub const GROWTH_NS_MIN: f64 = 50.0;

/// Consecutive invocations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// The numbers of the first and the last invocation.
    pub from: u64,
    pub to: u64,
    pub p10: u64,
    pub median: u64,
    pub p90: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Spearman's rank correlation.
    pub rho: f64,
    /// The Theil-Sen line at the first bin and at the last.
    pub begin_ns: f64,
    pub end_ns: f64,
}

impl Fit {
    pub fn grows(&self) -> bool {
        // Any growth from nearly nothing is a large factor, so the growth itself has to be large enough,
        // too.
        let begin = self.begin_ns.max(1.0);
        self.rho >= RHO_MIN
            && self.end_ns >= begin * GROWTH_MIN
            && self.end_ns - begin >= GROWTH_NS_MIN
    }
}

/// The value at which `part` of the weight is reached. Sorts `values`.
pub fn weighted_quantile(values: &mut [(u64, f64)], part: f64) -> u64 {
    values.sort_unstable_by_key(|(value, _)| *value);
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut seen = 0.0;
    for (value, weight) in values.iter() {
        seen += weight;
        if seen >= total * part {
            return *value;
        }
    }
    values.last().map_or(0, |(value, _)| *value)
}

/// Bins of the same number of invocations; `cost` is what counts.
pub fn bins(points: &[Point], count: u64, cost: impl Fn(&Point) -> u64) -> Vec<Bin> {
    let bins = BINS.min(points.len() / 8);
    if bins == 0 {
        return Vec::new();
    }
    let mut found = Vec::with_capacity(bins);
    let mut from = 0;
    for bin in 1..=bins {
        let end = (u128::from(count) * bin as u128 / bins as u128) as u64;
        let to = points.partition_point(|point| point.at < end);
        let mut values: Vec<(u64, f64)> = points[from..to]
            .iter()
            .map(|point| (cost(point), point.weight))
            .collect();
        if let (Some(first), Some(last)) = (points.get(from), points[..to].last()) {
            if !values.is_empty() {
                found.push(Bin {
                    from: first.at,
                    to: last.at,
                    p10: weighted_quantile(&mut values, 0.1),
                    median: weighted_quantile(&mut values, 0.5),
                    p90: weighted_quantile(&mut values, 0.9),
                });
            }
        }
        from = to;
    }
    found
}

/// The ranks of the values; equal values have the same rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let same = order[at..]
            .iter()
            .take_while(|other| values[**other] == values[order[at]])
            .count();
        let rank = at as f64 + (same as f64 - 1.0) / 2.0;
        for index in &order[at..at + same] {
            ranks[*index] = rank;
        }
        at += same;
    }
    ranks
}

/// Spearman's rank correlation of the values with their order; 0 if all values are equal.
fn spearman(values: &[f64]) -> f64 {
    let ranks = ranks(values);
    let mean = (values.len() as f64 - 1.0) / 2.0;
    let (mut both, mut of_ranks, mut of_order) = (0.0, 0.0, 0.0);
    for (order, rank) in ranks.iter().enumerate() {
        let (a, b) = (order as f64 - mean, rank - mean);
        both += a * b;
        of_order += a * a;
        of_ranks += b * b;
    }
    if of_ranks == 0.0 || of_order == 0.0 {
        return 0.0;
    }
    both / (of_ranks * of_order).sqrt()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

/// `None`: there are too few bins.
pub fn fit(bins: &[Bin]) -> Option<Fit> {
    if bins.len() < BINS {
        return None;
    }
    let values: Vec<f64> = bins.iter().map(|bin| bin.median as f64).collect();
    let mut slopes = Vec::new();
    for (at, one) in values.iter().enumerate() {
        for (beyond, other) in values[at + 1..].iter().enumerate() {
            slopes.push((other - one) / (beyond + 1) as f64);
        }
    }
    let slope = median(&mut slopes);
    let mut bases: Vec<f64> = values
        .iter()
        .enumerate()
        .map(|(at, value)| value - slope * at as f64)
        .collect();
    let base = median(&mut bases);
    Some(Fit {
        rho: spearman(&values),
        begin_ns: base,
        end_ns: base + slope * (values.len() - 1) as f64,
    })
}

/// The kinds that are checked have to make up this part of the invocations.
const KINDS_PART_MIN: f64 = 0.5;

/// Whether one kind of the invocations grows by itself, or no kind is frequent enough to be checked.
pub fn is_of_a_kind(points: &[Point], cost: impl Fn(&Point) -> u64) -> bool {
    let mut kinds: BTreeMap<Kind, Vec<Point>> = BTreeMap::new();
    for point in points {
        let kind = kinds.entry(point.kind).or_default();
        let at = kind.len() as u64;
        kind.push(Point { at, ..*point });
    }
    kinds.retain(|_, kind| kind.len() as u64 >= INVOCATIONS_MIN);
    let looked_at: usize = kinds.values().map(Vec::len).sum();
    if (looked_at as f64) < points.len() as f64 * KINDS_PART_MIN {
        return true;
    }
    kinds.values().any(|kind| {
        let found = bins(kind, kind.len() as u64, &cost);
        fit(&found).is_some_and(|fit| fit.grows())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    fn points(costs: &[u64]) -> Vec<Point> {
        costs
            .iter()
            .enumerate()
            .map(|(at, cost)| Point {
                at: at as u64,
                weight: 1.0,
                wall: *cost,
                cpu: *cost,
                kind: of_kind(0),
            })
            .collect()
    }

    fn of_kind(caller: u32) -> Kind {
        Kind { caller, error: 0 }
    }

    /// Lookups of missing files become rarer, reads of existing files more frequent.
    #[test]
    fn another_mixture_of_two_kinds_is_no_trend() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut mixed: Vec<Point> = points(&vec![0; 4000]);
        for (at, point) in mixed.iter_mut().enumerate() {
            let kind = u32::from(random.random_range(0..4000) < at as u64);
            point.kind = of_kind(kind);
            point.cpu = [1_000, 9_000][kind as usize] + random.random_range(0..500);
        }
        let cost = |point: &Point| point.cpu;
        assert!(fit(&bins(&mixed, 4000, cost)).is_some_and(|fit| fit.grows()));
        assert!(!is_of_a_kind(&mixed, cost));
        // One of the kinds grows.
        for point in mixed.iter_mut().filter(|point| point.kind == of_kind(1)) {
            point.cpu += point.at * 20;
        }
        assert!(is_of_a_kind(&mixed, cost));
        // There is one kind only, or so many that none is frequent.
        assert!(is_of_a_kind(
            &points(&(0..4000).collect::<Vec<u64>>()),
            cost
        ));
        for point in &mut mixed {
            point.kind = of_kind(point.at as u32 / 100);
        }
        assert!(is_of_a_kind(&mixed, cost));
    }

    fn grows(costs: &[u64]) -> bool {
        let found = bins(&points(costs), costs.len() as u64, |point| point.cpu);
        fit(&found).is_some_and(|fit| fit.grows())
    }

    /// A heavy tail: the logarithm is uniformly distributed.
    fn noisy(seed: u64, base: u64, spread: f64, count: usize) -> Vec<u64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..count)
            .map(|_| {
                let uniform = random.random_range(0..1 << 20) as f64 / (1 << 20) as f64;
                (base as f64 * (uniform * spread).exp()) as u64
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_constant_cost_is_no_trend(cost in 0u64..1 << 40, count in 0usize..3000) {
            prop_assert!(!grows(&vec![cost; count]));
        }

        #[test]
        fn noise_is_no_trend(seed: u64, base in 50u64..1 << 30, spread in 0.0f64..8.0,
                             count in 256usize..3000) {
            prop_assert!(!grows(&noisy(seed, base, spread, count)));
        }

        #[test]
        fn two_ways_of_a_call_are_no_trend(seed: u64, part in 1u64..99, count in 256usize..3000) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let costs: Vec<u64> = (0..count)
                .map(|_| if random.random_range(0..100) < part { 100 } else { 100_000 })
                .collect();
            prop_assert!(!grows(&costs));
        }

        #[test]
        fn growth_is_found_in_noise(seed: u64, base in 1000u64..1 << 30, times in 3.0f64..500.0,
                                    count in 512usize..3000) {
            let costs: Vec<u64> = noisy(seed, base, 0.5, count)
                .into_iter()
                .enumerate()
                .map(|(at, cost)| (cost as f64 * (1.0 + (times - 1.0) * at as f64 / count as f64)) as u64)
                .collect();
            prop_assert!(grows(&costs));
        }

        #[test]
        fn falling_is_not_growing(seed: u64, count in 512usize..3000) {
            let mut costs: Vec<u64> = (0..count).map(|at| 1000 + at as u64 * 10).collect();
            costs.reverse();
            let _ = seed;
            prop_assert!(!grows(&costs));
        }
    }
}
