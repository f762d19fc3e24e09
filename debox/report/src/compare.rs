//! Compares two runs: which differences the data show, and which they do not.
//!
//! Consecutive calls resemble each other, so they are not independent samples. The intervals therefore
//! come from a bootstrap over blocks of consecutive calls (as many as there are segments), never over
//! single calls. They are 99 % intervals, because many calls are compared at once. They apply to these
//! two runs: two runs cannot show how much runs vary by themselves.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustc_hash::FxHashMap;

use crate::comparison::{CallDifference, Comparison, Difference, Verdict};
use crate::report::Report;
use crate::segments::Series;

const ROUNDS: usize = 400;
const BLOCKS: usize = 40;
/// With fewer invocations on a side, no difference is reported.
const INVOCATIONS_MIN: u64 = 20;
/// Samples of a call that each bootstrap round draws from, at most.
const POINTS_MAX: usize = 6000;
const CALLS: usize = 40;

/// The statistics of all bootstrap rounds.
struct Draws {
    median: Vec<f64>,
    p99: Vec<f64>,
    total: Vec<f64>,
}

fn draw(series: &Series, seed: u64) -> Draws {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let every = series.points.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<(u64, f64)> = series
        .points
        .iter()
        .step_by(every)
        .map(|point| (point.wall, point.weight))
        .collect();
    let blocks = BLOCKS.min(points.len()).max(1);
    let block = |index: usize| {
        let at = |index: usize| points.len() * index / blocks;
        &points[at(index)..at(index + 1)]
    };
    // Totals are made from exact sums: a few long calls may be most of a total, and in no sample.
    let sums: Vec<(f64, f64)> = if series.complete {
        let sum = |block: &[(u64, f64)]| {
            let wall = block
                .iter()
                .map(|(wall, weight)| *wall as f64 * weight)
                .sum();
            (block.iter().map(|(_, weight)| weight).sum(), wall)
        };
        (0..blocks).map(|index| sum(block(index))).collect()
    } else {
        let sums = series.segments.iter();
        sums.map(|(count, wall, _)| (*count as f64, *wall as f64))
            .collect()
    };
    let mut draws = Draws {
        median: Vec::with_capacity(ROUNDS),
        p99: Vec::with_capacity(ROUNDS),
        total: Vec::with_capacity(ROUNDS),
    };
    // Sorted once: a round only changes how often each block counts.
    let mut sorted: Vec<(u64, f64, usize)> = (0..blocks)
        .flat_map(|index| {
            block(index)
                .iter()
                .map(move |(wall, weight)| (*wall, *weight, index))
        })
        .collect();
    sorted.sort_unstable_by_key(|(wall, ..)| *wall);
    let mut times = vec![0.0; blocks];
    for _ in 0..ROUNDS {
        times.fill(0.0);
        for _ in 0..blocks {
            times[random.random_range(0..blocks as u64) as usize] += 1.0;
        }
        let (median, p99) = quantiles(&sorted, &times);
        draws.median.push(median);
        draws.p99.push(p99);
        let (mut count, mut wall) = (0.0, 0.0);
        for _ in 0..sums.len() {
            let (of_count, of_wall) = sums[random.random_range(0..sums.len() as u64) as usize];
            count += of_count;
            wall += of_wall;
        }
        // A total is the number of calls, which is known exactly, times their mean.
        draws
            .total
            .push(wall / f64::max(count, 1.0) * series.count as f64);
    }
    draws
}

/// The median and the 99th percentile, if each block counts `times` times.
fn quantiles(sorted: &[(u64, f64, usize)], times: &[f64]) -> (f64, f64) {
    let weight = |(_, weight, block): &(u64, f64, usize)| weight * times[*block];
    let total: f64 = sorted.iter().map(weight).sum();
    let (mut seen, mut median) = (0.0, None);
    for point in sorted {
        seen += weight(point);
        if median.is_none() && seen >= total * 0.5 {
            median = Some(point.0 as f64);
        }
        if seen >= total * 0.99 {
            return (median.unwrap_or(0.0), point.0 as f64);
        }
    }
    let last = sorted.last().map_or(0.0, |point| point.0 as f64);
    (median.unwrap_or(last), last)
}

fn difference(base_ns: u64, ns: u64, base: &[f64], new: &[f64], enough: bool) -> Difference {
    if !enough {
        return Difference {
            base_ns,
            ns,
            change_percent: None,
            verdict: Verdict::TooFew,
        };
    }
    let mut changes: Vec<f64> = base
        .iter()
        .zip(new)
        .map(|(base, new)| 100.0 * (new - base) / base.max(1.0))
        .collect();
    changes.sort_by(f64::total_cmp);
    let at = |part: f64| changes[((changes.len() - 1) as f64 * part).round() as usize];
    let (low, high) = (at(0.005), at(0.995));
    let verdict = if low > 0.0 {
        Verdict::More
    } else if high < 0.0 {
        Verdict::Less
    } else {
        Verdict::None
    };
    Difference {
        base_ns,
        ns,
        change_percent: Some((low, high)),
        verdict,
    }
}

/// Compares two reports, each with the series of its calls.
pub fn compare(
    base: (&Report, &FxHashMap<String, Series>),
    new: (&Report, &FxHashMap<String, Series>),
) -> Comparison {
    let mut calls = Vec::new();
    let mut names: Vec<&String> = new.0.calls.iter().map(|call| &call.name).collect();
    names.truncate(CALLS);
    for call in base.0.calls.iter().take(CALLS) {
        if !names.contains(&&call.name) {
            names.push(&call.name);
        }
    }
    let empty = Series::default();
    for (index, name) in names.into_iter().enumerate() {
        let of = |side: &(&Report, &FxHashMap<String, Series>)| {
            let call = side.0.calls.iter().find(|call| call.name == *name);
            call.map_or((0, 0, 0, 0), |call| {
                (call.count, call.median_ns, call.p99_ns, call.budget.wall_ns)
            })
        };
        let (of_base, of_new) = (of(&base), of(&new));
        let enough = of_base.0.min(of_new.0) >= INVOCATIONS_MIN;
        let (drawn_base, drawn_new) = if enough {
            let seed = 2 * index as u64;
            (
                draw(base.1.get(name).unwrap_or(&empty), seed),
                draw(new.1.get(name).unwrap_or(&empty), seed + 1),
            )
        } else {
            (draw(&empty, 0), draw(&empty, 0))
        };
        calls.push(CallDifference {
            call: name.clone(),
            base_count: of_base.0,
            count: of_new.0,
            median: difference(
                of_base.1,
                of_new.1,
                &drawn_base.median,
                &drawn_new.median,
                enough,
            ),
            p99: difference(of_base.2, of_new.2, &drawn_base.p99, &drawn_new.p99, enough),
            total: difference(
                of_base.3,
                of_new.3,
                &drawn_base.total,
                &drawn_new.total,
                enough,
            ),
        });
    }
    Comparison {
        base: base.0.recording.files.clone(),
        base_span_ns: base.0.recording.span_ns,
        base_calls: base.0.recording.calls,
        span_ns: new.0.recording.span_ns,
        calls,
        base_caveats: base.0.caveats.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{Kind, Point};

    fn series(seed: u64, scale: f64) -> Series {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let points: Vec<Point> = (0..2000)
            .map(|at| {
                let wall = (scale * (1000 + random.random_range(0..1000)) as f64) as u64;
                Point {
                    at,
                    weight: 1.0,
                    wall,
                    cpu: wall,
                    kind: Kind {
                        caller: 0,
                        error: 0,
                    },
                }
            })
            .collect();
        Series {
            count: 2000,
            segments: Vec::new(),
            complete: true,
            points,
        }
    }

    fn verdict(a: &Series, b: &Series, seed: u64) -> Verdict {
        let (a, b) = (draw(a, seed), draw(b, seed + 1));
        difference(1, 1, &a.median, &b.median, true).verdict
    }

    #[test]
    fn the_same_twice_is_no_difference() {
        // At 99 %, one of a hundred pairs may show a difference by chance.
        let wrong = (0..60)
            .filter(|seed| {
                let (a, b) = (series(seed * 2, 1.0), series(seed * 2 + 1, 1.0));
                verdict(&a, &b, *seed) != Verdict::None
            })
            .count();
        assert!(wrong <= 5, "{wrong} of 60");
    }

    #[test]
    fn a_tenth_more_is_seen() {
        assert_eq!(verdict(&series(1, 1.0), &series(2, 1.1), 5), Verdict::More);
        assert_eq!(verdict(&series(3, 1.1), &series(4, 1.0), 5), Verdict::Less);
    }
}
