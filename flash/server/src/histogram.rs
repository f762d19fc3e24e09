// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the turns of a loop take: counts by duration, each bucket at most an eighth wider than its begin. A record
//! costs two additions.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two.
const PARTS: u64 = 8;
const PARTS_LOG: u32 = PARTS.ilog2();
/// From 0 to 16 s in microseconds. What is longer is in the last one.
const BUCKETS: usize = 176;
/// The powers of two, in microseconds, for which Prometheus gets a row: 8 us to 1 s.
const ROWS: std::ops::RangeInclusive<u32> = 3..=20;

pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, ns: u64) {
        self.buckets[bucket(ns / 1000)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The time that all but one in `one_in` did not exceed, in microseconds. `None`: there are none.
    pub fn all_but_one_in_us(&self, one_in: u64) -> Option<u64> {
        let counts: Vec<u64> = self.counts().collect();
        let all: u64 = counts.iter().sum();
        let longer = all / one_in;
        let mut above = 0;
        let mut places = counts.iter().enumerate().rev();
        let found = places.find(|(_, count)| {
            above += **count;
            above > longer
        });
        found.map(|(place, _)| end_us(place))
    }

    pub fn count(&self) -> u64 {
        self.counts().sum()
    }

    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let buckets = self.buckets.iter();
        buckets.map(|bucket| bucket.load(Ordering::Relaxed))
    }

    /// The rows of a histogram of Prometheus. `label`: as `loop="0"`.
    pub fn rows(&self, page: &mut String, name: &str, label: &str) {
        let counts: Vec<u64> = self.counts().collect();
        for power in ROWS {
            let end = 1 << power;
            let shorter = counts.iter().enumerate();
            let shorter: u64 = shorter
                .filter(|(place, _)| end_us(*place) <= end)
                .map(|(_, count)| count)
                .sum();
            let seconds = end as f64 / 1e6;
            // Writing into memory cannot fail.
            let _ = writeln!(page, "{name}_bucket{{{label},le=\"{seconds}\"}} {shorter}");
        }
        let all: u64 = counts.iter().sum();
        let sum = self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let _ = write!(
            page,
            "{name}_bucket{{{label},le=\"+Inf\"}} {all}\n{name}_sum{{{label}}} {sum}\n{name}_count{{{label}}} {all}\n"
        );
    }
}

fn bucket(us: u64) -> usize {
    if us < PARTS {
        return us as usize;
    }
    let power = us.ilog2();
    let part = (us >> (power - PARTS_LOG)) - PARTS;
    let place = u64::from(power - PARTS_LOG + 1) * PARTS + part;
    (place as usize).min(BUCKETS - 1)
}

/// Where a bucket ends, in microseconds.
fn end_us(place: usize) -> u64 {
    let place = place as u64;
    match place.checked_sub(PARTS) {
        None => place + 1,
        Some(above) => (PARTS + above % PARTS + 1) << (above / PARTS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other() {
        for place in 1..BUCKETS {
            let begin = end_us(place - 1);
            assert_eq!((bucket(begin - 1), bucket(begin)), (place - 1, place));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn rows_are_a_histogram_of_prometheus() {
        let histogram = Histogram::default();
        for us in [1, 8, 20, 900, 2_000_000] {
            histogram.record(us * 1000);
        }
        let mut page = String::new();
        histogram.rows(&mut page, "turn", "loop=\"0\"");
        for row in [
            "turn_bucket{loop=\"0\",le=\"0.000008\"} 1\n",
            "turn_bucket{loop=\"0\",le=\"0.000016\"} 2\n",
            "turn_bucket{loop=\"0\",le=\"0.001024\"} 4\n",
            "turn_bucket{loop=\"0\",le=\"1.048576\"} 4\n",
            "turn_bucket{loop=\"0\",le=\"+Inf\"} 5\n",
            "turn_sum{loop=\"0\"} 2.000929\n",
            "turn_count{loop=\"0\"} 5\n",
        ] {
            assert!(page.contains(row), "{row}{page}");
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_times(
            mut times in proptest::collection::vec(0u64..10_000_000, 1..300), one_in in 2u64..50
        ) {
            let histogram = Histogram::default();
            times.iter().for_each(|us| histogram.record(us * 1000));
            times.sort_unstable();
            let longer = times.len() / one_in as usize;
            let exact = times[times.len() - 1 - longer];
            let found = histogram.all_but_one_in_us(one_in).expect("there are some");
            prop_assert!(found > exact && found <= exact + exact / 8 + 1, "{} {}", found, exact);
        }
    }
}
