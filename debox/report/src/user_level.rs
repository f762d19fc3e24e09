//! Compares what a program measured around its calls with what the kernel measured for the same calls.
//!
//! After Figures 2.1 and 2.2 and Table 2.1 of Ruan's thesis: the program's clock also counts time
//! between its two readings that is no part of the call.

use std::cmp::Reverse;

use crate::histogram::Histogram;
use crate::names::{Name, Names};
use crate::parts::{budget, Parts, Place};
use crate::report::{Distribution, UserLevelCall, UserLevelPoint};

const CDF_POINTS: usize = 160;
/// Single calls that are drawn, chosen at random,
const POINTS: usize = 300;
/// and those with most time outside the call, because a random choice leaves out the few that matter.
const LARGEST: usize = 20;

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub place: Place,
    /// When it began, in nanoseconds since 1970.
    pub at: i64,
    pub tid: u32,
    pub comm: Name,
    pub user: u64,
    pub kernel: u64,
    pub away: u64,
    pub calls: u64,
}

impl Measured {
    /// The two clocks agree within some tens of nanoseconds, so a difference below zero is zero.
    fn outside(&self) -> u64 {
        self.user.saturating_sub(self.kernel)
    }

    /// Most time outside first. The order does not depend on which thread read the call.
    fn rank(&self) -> (Reverse<u64>, u32, u32) {
        (Reverse(self.outside()), self.place.group, self.place.row)
    }

    /// A pseudo-random number that depends only on the row's place; the calls with the lowest numbers
    /// are the random choice.
    fn lot(&self) -> (u64, u32, u32) {
        let place = u64::from(self.place.group) << 32 | u64::from(self.place.row);
        let mixed = (place ^ (place >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 32), self.place.group, self.place.row)
    }
}

/// Sums over the calls of one name that both have measured.
#[derive(Debug, Clone, Default)]
pub struct UserSums {
    pub count: u64,
    user: Sums,
    kernel: Sums,
    outside: Sums,
    parts: Parts,
    idle: u64,
    away: u64,
    calls: u64,
    chosen: Vec<Measured>,
    largest: Vec<Measured>,
}

#[derive(Debug, Clone, Default)]
struct Sums {
    histogram: Histogram,
    total: u64,
    min: Option<u64>,
}

impl Sums {
    fn add(&mut self, value: u64) {
        self.histogram.add(value);
        self.total = self.total.saturating_add(value);
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
    }

    fn merge(&mut self, other: &Sums) {
        self.histogram.merge(&other.histogram);
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.into_iter().chain(other.min).min();
    }

    fn distribution(&self, count: u64) -> Distribution {
        let min_ns = self.min.unwrap_or(0);
        Distribution {
            min_ns,
            mean_ns: self.total / count.max(1),
            // The median comes from buckets; the first bucket may begin below the lowest value.
            median_ns: self.histogram.quantile(0.5).max(min_ns),
            p99_ns: self.histogram.quantile(0.99).max(min_ns),
            max_ns: self.histogram.max(),
            total_ns: self.total,
            cdf: self.histogram.cdf(CDF_POINTS),
        }
    }
}

/// Keeps the first `most` calls in the order `by`, and up to `slack` more.
fn keep(kept: &mut Vec<Measured>, most: usize, slack: usize, by: fn(&Measured) -> (u64, u32, u32)) {
    if kept.len() > most + slack {
        kept.select_nth_unstable_by_key(most, by);
        kept.truncate(most);
    }
}

fn by_rank(one: &Measured) -> (u64, u32, u32) {
    let (Reverse(outside), group, row) = one.rank();
    (u64::MAX - outside, group, row)
}

impl UserSums {
    pub fn add(&mut self, one: Measured, parts: &Parts, idle: u64) {
        self.count += 1;
        self.user.add(one.user);
        self.kernel.add(one.kernel);
        self.outside.add(one.outside());
        self.parts.add(parts);
        self.idle = self.idle.saturating_add(idle);
        self.away = self.away.saturating_add(one.away.min(one.outside()));
        let left = one.outside().saturating_sub(one.away);
        self.calls = self.calls.saturating_add(one.calls.min(left));
        self.chosen.push(one);
        self.largest.push(one);
        self.cut(POINTS);
    }

    fn cut(&mut self, slack: usize) {
        keep(&mut self.chosen, POINTS, slack, Measured::lot);
        keep(&mut self.largest, LARGEST, slack, by_rank);
    }

    pub fn merge(&mut self, other: &UserSums) {
        self.count += other.count;
        self.user.merge(&other.user);
        self.kernel.merge(&other.kernel);
        self.outside.merge(&other.outside);
        self.parts.add(&other.parts);
        self.idle = self.idle.saturating_add(other.idle);
        self.away = self.away.saturating_add(other.away);
        self.calls = self.calls.saturating_add(other.calls);
        self.chosen.extend(&other.chosen);
        self.largest.extend(&other.largest);
        self.cut(POINTS);
    }

    pub fn call(
        &self,
        name: &str,
        all: u64,
        begin: i64,
        has_irq: bool,
        names: &Names,
    ) -> UserLevelCall {
        let mut sums = self.clone();
        sums.cut(0);
        sums.largest.sort_unstable_by_key(by_rank);
        let since = |at: i64| at.saturating_sub(begin).max(0) as u64;
        let mut drawn = sums.chosen;
        drawn.extend(sums.largest.iter().filter(|one| one.outside() > 0));
        drawn.sort_unstable_by_key(|one| (one.at, one.place));
        drawn.dedup();
        let largest = sums.largest.iter().map(|one| UserLevelPoint {
            at_ns: since(one.at),
            tid: one.tid,
            comm: names.get(one.comm).to_string(),
            user_ns: one.user,
            kernel_ns: one.kernel,
            away_ns: one.away.min(one.outside()),
            calls_ns: one.calls.min(one.outside().saturating_sub(one.away)),
        });
        UserLevelCall {
            call: name.to_string(),
            count: self.count,
            not_measured: all.saturating_sub(self.count),
            user: self.user.distribution(self.count),
            kernel: self.kernel.distribution(self.count),
            outside: self.outside.distribution(self.count),
            budget: budget(&self.parts, self.idle, has_irq),
            away_ns: self.away,
            calls_ns: self.calls,
            points: drawn
                .iter()
                .map(|one| (since(one.at), one.user, one.kernel))
                .collect(),
            largest: largest.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(row: u32) -> Measured {
        Measured {
            place: Place {
                score: 0,
                group: row % 3,
                row,
            },
            at: i64::from(row),
            tid: 1,
            comm: crate::names::NONE,
            user: 1_000 + u64::from(row * 7919 % 10_007),
            kernel: 900,
            away: 0,
            calls: 0,
        }
    }

    #[test]
    fn it_does_not_matter_who_reads_what() {
        let of = |parts: usize| {
            let mut sums = vec![UserSums::default(); parts];
            for row in 0..5_000u32 {
                sums[row as usize % parts].add(measured(row), &Parts::default(), 0);
            }
            let mut whole = UserSums::default();
            for part in &sums {
                whole.merge(part);
            }
            let call = whole.call("read", 5_001, 0, false, &Names::default());
            serde_json::to_string(&call).expect("JSON")
        };
        assert_eq!(of(1), of(4));
    }

    #[test]
    fn the_largest_are_kept_whatever_chance_says() {
        let mut sums = UserSums::default();
        for row in 0..20_000 {
            let peak = u64::from(row == 12_345) * 5_000_000;
            let mut one = measured(row);
            one.user += peak;
            one.away = peak;
            sums.add(one, &Parts::default(), 0);
        }
        let call = sums.call("read", 20_000, 0, false, &Names::default());
        assert_eq!(call.largest.len(), LARGEST);
        assert_eq!(call.largest[0].away_ns, 5_000_000);
        assert!(call.points.iter().any(|point| point.0 == 12_345));
        assert!(call.points.len() <= POINTS + LARGEST);
        assert_eq!((call.kernel.min_ns, call.kernel.max_ns), (900, 900));
        assert_eq!(call.outside.max_ns, call.user.max_ns - 900);
    }
}
