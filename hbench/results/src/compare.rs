// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between two results: `hbench.comparison/1`. The intervals are simultaneous: where nothing has
//! changed, the whole table shows a change in one of twenty comparisons.

use std::collections::BTreeMap;

use kit_stats::{deviation, simultaneous, standardized};
use serde::Serialize;

use crate::environment::differences;
use crate::figures::{figures, without_values, Figure};
use crate::file::Recorded;
use crate::meta::{LeftOut, Sample};

const ERROR_RATE: f64 = 0.05;
/// Other programs make this difference between two runs of the same thing.
const CHANGE_MIN: f64 = 0.01;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Slower,
    Faster,
    /// The data show no difference.
    Same,
    /// One of both has too few samples.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub benchmark: String,
    pub a_ns: f64,
    pub b_ns: f64,
    /// Time in B by time in A; null where a time is not positive.
    pub ratio: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    pub name: String,
    pub a: String,
    pub b: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    /// Whether each sample of A was followed by the same of B.
    pub paired: bool,
    /// The largest change first.
    pub differences: Vec<Difference>,
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
    /// Benchmarks without values, with the reasons.
    pub left_out_a: Vec<LeftOut>,
    pub left_out_b: Vec<LeftOut>,
    /// Benchmarks whose samples fall into two groups, or drift: a mean says little of them.
    pub unsteady_a: Vec<String>,
    pub unsteady_b: Vec<String>,
    pub environment: Vec<Changed>,
}

struct Pair {
    difference: Difference,
    /// Logarithm of the ratio, in each draw.
    draws: Vec<f64>,
}

/// `paired`: the samples of one round of both were taken one after the other, so their ratio is what is averaged.
/// Where an operation transfers another number of bytes in B, as with a larger cache, B's times are those of as many bytes
/// as in A.
pub fn compare(a: &Recorded, b: &Recorded, paired: bool) -> Comparison {
    let b = &of_as_many_bytes(a, b);
    let (first, second) = (figures(a), figures(b));
    let by_name: BTreeMap<&str, &Figure> = second
        .iter()
        .map(|figure| (figure.benchmark.as_str(), figure))
        .collect();
    let names = |figures: &[Figure], others: &[Figure]| -> Vec<String> {
        let has = |name: &str| others.iter().any(|other| other.benchmark == name);
        let own = figures.iter().map(|figure| figure.benchmark.clone());
        own.filter(|name| !has(name)).collect()
    };
    let both = first.iter().filter_map(|figure| {
        let other = by_name.get(figure.benchmark.as_str())?;
        Some(match paired {
            true => pair_by_round(figure, other, a, b),
            false => pair(figure, other),
        })
    });
    let pairs: Vec<Pair> = both.collect();
    let errors = simultaneous(
        pairs.iter().map(|pair| standardized(&pair.draws)),
        ERROR_RATE,
    );
    let mut differences: Vec<Difference> =
        pairs.into_iter().map(|pair| judge(pair, errors)).collect();
    let size = |of: &Difference| of.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    differences.sort_by(|a, b| size(b).total_cmp(&size(a)));
    Comparison {
        schema: "hbench.comparison/1",
        paired,
        differences,
        only_a: names(&first, &second),
        only_b: names(&second, &first),
        left_out_a: without_values(&a.meta).into_iter().cloned().collect(),
        left_out_b: without_values(&b.meta).into_iter().cloned().collect(),
        unsteady_a: unsteady(&first),
        unsteady_b: unsteady(&second),
        environment: changed(a, b),
    }
}

fn of_as_many_bytes(a: &Recorded, b: &Recorded) -> Recorded {
    let bytes: BTreeMap<&str, u64> = a
        .samples
        .iter()
        .filter_map(|sample| Some((sample.benchmark.as_str(), sample.bytes?)))
        .collect();
    let mut b = b.clone();
    for sample in &mut b.samples {
        let wanted = bytes.get(sample.benchmark.as_str()).copied();
        if let (Some(wanted), Some(own)) = (wanted, sample.bytes.filter(|own| *own > 0)) {
            sample.operation_ns *= wanted as f64 / own as f64;
            sample.bytes = Some(wanted);
        }
    }
    b
}

fn unsteady(figures: &[Figure]) -> Vec<String> {
    let unsteady = figures
        .iter()
        .filter(|figure| figure.modes.is_some() || figure.drift.is_some());
    unsteady.map(|figure| figure.benchmark.clone()).collect()
}

fn changed(a: &Recorded, b: &Recorded) -> Vec<Changed> {
    let mut changed: Vec<Changed> = differences(&a.meta.environment, &b.meta.environment)
        .into_iter()
        .map(|(name, a, b)| Changed { name, a, b })
        .collect();
    let mut add = |name: &str, a: String, b: String| {
        if a != b {
            let name = name.to_string();
            changed.push(Changed { name, a, b });
        }
    };
    let under = |of: &Recorded| of.meta.under.clone().unwrap_or_else(|| "none".to_string());
    add("under", under(a), under(b));
    let instances = |of: &Recorded| of.meta.instances.to_string();
    add("instances", instances(a), instances(b));
    add(
        "hbench version",
        a.meta.version.clone(),
        b.meta.version.clone(),
    );
    changed
}

fn pair(a: &Figure, b: &Figure) -> Pair {
    let draws = match a.operation_ns > 0.0 && b.operation_ns > 0.0 {
        true => {
            let pairs = a
                .draws
                .iter()
                .zip(&b.draws)
                .filter(|(a, b)| **a > 0.0 && **b > 0.0);
            // Both were drawn with the same numbers; an offset makes the pairs independent.
            let shifted = b.draws.iter().cycle().skip(b.draws.len() / 2);
            match pairs.count() == a.draws.len() {
                true => a
                    .draws
                    .iter()
                    .zip(shifted)
                    .map(|(a, b)| (b / a).ln())
                    .collect(),
                false => Vec::new(),
            }
        }
        false => Vec::new(),
    };
    Pair {
        difference: difference(a, b, b.operation_ns / a.operation_ns),
        draws,
    }
}

fn pair_by_round(a: &Figure, b: &Figure, first: &Recorded, second: &Recorded) -> Pair {
    // With several instances, the mean of each round.
    let of = |recorded: &Recorded| -> BTreeMap<u32, f64> {
        let mut rounds: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let own = |sample: &&Sample| sample.benchmark == a.benchmark;
        for sample in recorded.samples.iter().filter(own) {
            let (sum, count) = rounds.entry(sample.round).or_default();
            (*sum, *count) = (*sum + sample.operation_ns, *count + 1.0);
        }
        let means = rounds.into_iter();
        means
            .map(|(round, (sum, count))| (round, sum / count))
            .collect()
    };
    let (first, second) = (of(first), of(second));
    let logs: Vec<f64> = first
        .iter()
        .filter_map(|(round, a)| Some((second.get(round)? / a).ln()))
        .filter(|log| log.is_finite())
        .collect();
    let mut sorted = logs.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    match kit_stats::trimmed_mean(&sorted, crate::figures::TRIMMED) {
        Some(mean) => Pair {
            difference: difference(a, b, mean.exp()),
            draws: kit_stats::trimmed_draws(&logs, crate::figures::TRIMMED, 1),
        },
        None => pair(a, b),
    }
}

fn difference(a: &Figure, b: &Figure, ratio: f64) -> Difference {
    Difference {
        benchmark: a.benchmark.clone(),
        a_ns: a.operation_ns,
        b_ns: b.operation_ns,
        ratio: (ratio.is_finite() && ratio > 0.0).then_some(ratio),
        interval: None,
        verdict: Verdict::Unknown,
    }
}

/// `errors`: half-width of the interval in standard errors.
fn judge(pair: Pair, errors: f64) -> Difference {
    let mut difference = pair.difference;
    let Some(ratio) = difference.ratio.filter(|_| !pair.draws.is_empty()) else {
        return difference;
    };
    let room = errors * deviation(&pair.draws).1;
    let (low, high) = (ratio.ln() - room, ratio.ln() + room);
    difference.interval = Some((low.exp(), high.exp()));
    difference.verdict = if ratio.ln().abs() < CHANGE_MIN {
        Verdict::Same
    } else if low > 0.0 {
        Verdict::Slower
    } else if high < 0.0 {
        Verdict::Faster
    } else {
        Verdict::Same
    };
    difference
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::recorded;

    fn around(centre: f64, seed: u64) -> Vec<f64> {
        (0..11u64)
            .map(|i| centre * (1.0 + ((i * 7 + seed * 5) % 11) as f64 / 1000.0))
            .collect()
    }

    #[test]
    fn what_changed_comes_first_and_the_rest_is_the_same() {
        let a = recorded(&[
            ("a", &around(100.0, 1)),
            ("b", &around(50.0, 2)),
            ("gone", &[1.0]),
        ]);
        let b = recorded(&[
            ("a", &around(100.0, 3)),
            ("b", &around(60.0, 4)),
            ("new", &[1.0]),
        ]);
        for paired in [false, true] {
            let found = compare(&a, &b, paired);
            assert_eq!(found.differences[0].benchmark, "b");
            assert_eq!(found.differences[0].verdict, Verdict::Slower);
            let ratio = found.differences[0].ratio.expect("a ratio");
            assert!((ratio - 1.2).abs() < 0.01, "{ratio}");
            assert_eq!(found.differences[1].verdict, Verdict::Same);
            assert_eq!(
                (&found.only_a[..], &found.only_b[..]),
                (&["gone".to_string()][..], &["new".to_string()][..])
            );
        }
        let back = compare(&b, &a, false);
        assert_eq!(back.differences[0].verdict, Verdict::Faster);
    }

    #[test]
    fn a_larger_buffer_is_not_slower() {
        let a = recorded(&[("memory.read/memory", &around(100.0, 1))]);
        let mut b = recorded(&[("memory.read/memory", &around(200.0, 2))]);
        for sample in &mut b.samples {
            sample.bytes = sample.bytes.map(|bytes| 2 * bytes);
        }
        assert_eq!(a.samples[0].bytes, Some(1000));
        for paired in [false, true] {
            let found = compare(&a, &b, paired);
            assert_eq!(found.differences[0].verdict, Verdict::Same, "{found:?}");
            assert!((found.differences[0].b_ns - 100.0).abs() < 2.0, "{found:?}");
        }
    }

    #[test]
    fn all_instances_count_in_a_pair() {
        let mut a = recorded(&[("a", &around(100.0, 1))]);
        let mut b = recorded(&[("a", &around(100.0, 2))]);
        for (of, second) in [(&mut a, 100.0), (&mut b, 300.0)] {
            let more: Vec<Sample> = of.samples.clone();
            of.samples.extend(more.into_iter().map(|sample| Sample {
                instance: 1,
                operation_ns: second,
                ..sample
            }));
        }
        let ratio = compare(&a, &b, true).differences[0].ratio.expect("a ratio");
        assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn what_has_no_values_has_its_reason() {
        let mut a = recorded(&[("a", &around(100.0, 1))]);
        a.meta.left_out.push(LeftOut {
            benchmark: "file.open/cold".to_string(),
            reason: "needs root".to_string(),
            round: None,
            is_wrong: false,
        });
        let found = compare(&a, &recorded(&[("a", &around(100.0, 2))]), false);
        assert_eq!(found.left_out_a[0].reason, "needs root");
        assert!(found.left_out_b.is_empty());
    }

    #[test]
    fn one_sample_or_a_negative_time_decides_nothing() {
        let a = recorded(&[("one", &[1.0]), ("negative", &[-1.0, -1.1, -1.2])]);
        let b = recorded(&[("one", &[9.0]), ("negative", &[1.0, 1.1, 1.2])]);
        let found = compare(&a, &b, false);
        assert!(
            found
                .differences
                .iter()
                .all(|one| one.verdict == Verdict::Unknown),
            "{found:?}"
        );
    }

    #[test]
    fn noise_is_rarely_taken_for_a_change() {
        let mut alarms = 0;
        let noisy = |seed: u64| -> Vec<Vec<f64>> {
            (0..100u64)
                .map(|name| {
                    let of = |i: u64| {
                        let mixed =
                            (i + 17 * name + 1009 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                        100.0 + (mixed >> 32) as f64 / 2f64.powi(32) * 10.0
                    };
                    (0..11).map(|i| of(i * 7919)).collect()
                })
                .collect()
        };
        let names: Vec<String> = (0..100).map(|i| format!("b{i}")).collect();
        for seed in 0..10 {
            let make = |seed| {
                let values = noisy(seed);
                let pairs: Vec<(&str, &[f64])> = names
                    .iter()
                    .zip(&values)
                    .map(|(name, of)| (name.as_str(), &of[..]))
                    .collect();
                recorded(&pairs)
            };
            let found = compare(&make(2 * seed), &make(2 * seed + 1), false);
            let differs = |one: &&Difference| one.verdict != Verdict::Same;
            alarms += found.differences.iter().filter(differs).count();
        }
        assert!(alarms <= 5, "{alarms} of 1000");
    }
}
