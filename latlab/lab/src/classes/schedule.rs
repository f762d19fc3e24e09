//! Two independent streams of Poisson arrivals in one open loop.

use anyhow::{ensure, Result};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::Tree;
use crate::content::mix;
use crate::load::{self, Arrivals, Step};

/// Seeds of the two streams differ in this, and so do those of what is asked for.
const OF_HOT: u64 = 1 << 60;
const OF_COLD: u64 = 2 << 60;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub hot_rps: f64,
    /// 0: no cold requests.
    pub cold_rps: f64,
    /// The part of the cold names that do not exist.
    pub missing: f64,
}

/// Due times in nanoseconds since the start of the run, ascending, and the name that each request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    pub starts: Vec<i64>,
    pub names: Vec<u32>,
}

impl Schedule {
    /// The hot requests are the same whatever the rate of cold ones, so that runs with different rates differ in
    /// the cold requests only. No cold directory is asked for twice.
    pub fn new(tree: &Tree, rates: Rates, duration_ns: i64, seed: u64) -> Result<Schedule> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ OF_HOT));
        let hot = starts(rates.hot_rps, duration_ns, seed ^ OF_HOT);
        let mut all: Vec<(i64, u32)> = hot
            .into_iter()
            .map(|start| (start, random.random_range(0..tree.hot)))
            .collect();
        let cold = starts(rates.cold_rps, duration_ns, seed ^ OF_COLD);
        ensure!(
            cold.len() <= tree.cold as usize,
            "{} cold names are needed, and there are {}",
            cold.len(),
            tree.cold
        );
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ OF_COLD));
        // Names that were made together are beside each other on the disk.
        let mut directories: Vec<u32> = (0..tree.cold).collect();
        directories.shuffle(&mut random);
        all.extend(cold.into_iter().zip(directories).map(|(start, directory)| {
            let name = match random.random::<f64>() < rates.missing {
                true => tree.missing_name(directory),
                false => tree.cold_name(directory),
            };
            (start, name)
        }));
        all.sort_by_key(|(start, _)| *start);
        let (starts, names) = all.into_iter().unzip();
        Ok(Schedule { starts, names })
    }
}

fn starts(rps: f64, duration_ns: i64, seed: u64) -> Vec<i64> {
    if rps <= 0.0 {
        return Vec::new();
    }
    let step = Step {
        rps,
        ns: duration_ns,
    };
    let mut arrivals = Arrivals::Rates(load::Rates::new(&[step], true, seed, 0, 1));
    std::iter::from_fn(|| {
        let next = arrivals.peek();
        arrivals.advance();
        next
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::workload::Kind;

    const SECOND: i64 = 1_000_000_000;
    const TREE: Tree = Tree {
        seed: 3,
        hot: 10,
        cold: 4000,
        hot_bytes: 1,
        cold_bytes: 1,
    };

    fn schedule(cold_rps: f64) -> Schedule {
        let rates = Rates {
            hot_rps: 2000.0,
            cold_rps,
            missing: 0.25,
        };
        Schedule::new(&TREE, rates, 10 * SECOND, 7).unwrap()
    }

    fn of_kind(schedule: &Schedule, hot: bool) -> Vec<(i64, u32)> {
        let all = schedule.starts.iter().zip(&schedule.names);
        all.map(|(start, name)| (*start, *name))
            .filter(|(_, name)| (TREE.kind(*name) == Kind::Hot) == hot)
            .collect()
    }

    #[test]
    fn both_classes_arrive_at_their_rates_and_independently() {
        let schedule = schedule(300.0);
        assert!(schedule.starts.is_sorted());
        assert!(schedule
            .starts
            .iter()
            .all(|start| (0..10 * SECOND).contains(start)));
        let (hot, cold) = (of_kind(&schedule, true), of_kind(&schedule, false));
        assert!((19_400..20_600).contains(&hot.len()), "{}", hot.len());
        assert!((2_780..3_220).contains(&cold.len()), "{}", cold.len());
        for class in [&hot, &cold] {
            let gaps: Vec<f64> = class.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            // Exponential gaps: 1/e of them are longer than the mean.
            let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64;
            let longer = longer / gaps.len() as f64;
            assert!((longer - 0.3679).abs() < 0.03, "{longer}");
        }
        let files: HashSet<u32> = hot.iter().map(|(_, name)| *name).collect();
        assert_eq!(files.len(), TREE.hot as usize);
    }

    #[test]
    fn a_cold_directory_is_touched_once_and_a_part_of_the_names_is_missing() {
        let cold = of_kind(&schedule(300.0), false);
        let directory = |name: u32| match TREE.kind(name) {
            Kind::Missing => name - TREE.missing_name(0),
            _ => name - TREE.cold_name(0),
        };
        let directories: HashSet<u32> = cold.iter().map(|(_, name)| directory(*name)).collect();
        assert_eq!(directories.len(), cold.len());
        let missing = cold
            .iter()
            .filter(|(_, name)| TREE.kind(*name) == Kind::Missing)
            .count();
        let part = missing as f64 / cold.len() as f64;
        assert!((part - 0.25).abs() < 0.03, "{part}");
        let beside = cold.windows(2).filter(|w| w[0].1 + 1 == w[1].1).count();
        assert!(beside < 10, "{beside} neighbours follow each other");
    }

    #[test]
    fn hot_requests_are_the_same_whatever_the_cold_ones_are() {
        let (none, many) = (schedule(0.0), schedule(300.0));
        assert_eq!(of_kind(&none, false), []);
        assert_eq!(of_kind(&none, true), of_kind(&many, true));
        assert_eq!(many, schedule(300.0));
    }

    #[test]
    fn too_few_names_are_an_error() {
        let rates = Rates {
            hot_rps: 1.0,
            cold_rps: 5000.0,
            missing: 0.0,
        };
        let error = Schedule::new(&TREE, rates, SECOND, 1).unwrap_err();
        assert!(error.to_string().contains("there are 4000"), "{error}");
    }
}
