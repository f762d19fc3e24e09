//! Counts requests in flight while the load runs.
//!
//! The number is counted here, not computed from the rows: a row does not say when a request was given
//! up, and the sum of the rows is checked against this count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Requests in flight in the measured time of one generator process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub at_begin: u64,
    pub at_end: u64,
    /// Time in flight, summed over all requests.
    pub request_ns: i64,
    /// Length of the measured time, up to where the run ended.
    pub measured_ns: i64,
    /// Requests that began in the warm-up and failed after it, by failure.
    pub carried_errors: BTreeMap<String, u64>,
}

/// Tracks the number of requests in flight. Times must not decrease.
pub struct Counter {
    from_ns: i64,
    to_ns: i64,
    since_ns: i64,
    in_flight: u64,
    counted: Counted,
}

impl Counter {
    /// Counts from the end of the warm-up to the end of the run.
    pub fn new(from_ns: i64, to_ns: i64) -> Counter {
        Counter {
            from_ns,
            to_ns,
            since_ns: 0,
            in_flight: 0,
            counted: Counted::default(),
        }
    }

    /// The part of an interval that is in the measured time.
    fn measured(&self, begin_ns: i64, end_ns: i64) -> i64 {
        (end_ns.min(self.to_ns) - begin_ns.max(self.from_ns)).max(0)
    }

    fn advance(&mut self, now: i64) {
        let now = now.max(self.since_ns);
        self.counted.request_ns += self.measured(self.since_ns, now) * self.in_flight as i64;
        for (edge_ns, at_edge) in [
            (self.from_ns, &mut self.counted.at_begin),
            (self.to_ns, &mut self.counted.at_end),
        ] {
            if self.since_ns < edge_ns && edge_ns <= now {
                *at_edge = self.in_flight;
            }
        }
        self.since_ns = now;
    }

    /// A request begins that was due at `intended_ns`, which is not after `now`.
    pub fn begin(&mut self, intended_ns: i64, now: i64) {
        self.advance(now);
        self.in_flight += 1;
        // It counts as in flight from the time it was due, even if the generator was late.
        self.counted.request_ns += self.measured(intended_ns, now);
        self.counted.at_begin += u64::from(intended_ns < self.from_ns && self.from_ns <= now);
        self.counted.at_end += u64::from(intended_ns < self.to_ns && self.to_ns <= now);
    }

    /// `failed`: the failure's name, if it failed.
    pub fn end(&mut self, intended_ns: i64, now: i64, failed: Option<&'static str>) {
        self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(name) = failed.filter(|_| intended_ns < self.from_ns && self.from_ns <= now) {
            let times = self.counted.carried_errors.entry(name.to_string());
            *times.or_default() += 1;
        }
    }

    /// The run ends: no further request begins, and those in flight are about to be given up.
    pub fn stop(&mut self, now: i64) {
        self.advance(now);
        if now < self.to_ns {
            self.counted.at_end = self.in_flight;
            self.to_ns = now;
        }
        self.counted.measured_ns = self.measured(self.from_ns, now);
    }

    pub fn counted(self) -> Counted {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a sum over the requests' own times.
        #[test]
        fn counting_is_adding_up(
            requests in prop::collection::vec((0i64..100, 0i64..10, 1i64..60, any::<bool>()), 0..40),
            from in 0i64..50, length in 1i64..60, stopped in 60i64..200
        ) {
            let to = from + length;
            let mut counter = Counter::new(from, to);
            let mut changes = Vec::new();
            for (at, (intended, late, _, _)) in requests.iter().enumerate() {
                changes.push((intended + late, 1, at));
            }
            for (at, (intended, late, took, _)) in requests.iter().enumerate() {
                changes.push((intended + late + took, 0, at));
            }
            changes.sort_unstable();
            for (now, begins, at) in changes.iter().filter(|change| change.0 < stopped) {
                let (intended, _, _, fails) = requests[*at];
                match begins {
                    1 => counter.begin(intended, *now),
                    _ => counter.end(intended, *now, fails.then_some("reset")),
                }
            }
            counter.stop(stopped);
            let counted = counter.counted();
            let until = to.min(stopped);
            let begun = || requests.iter().filter(|(intended, late, ..)| intended + late < stopped);
            let sum: i64 = begun()
                .map(|(intended, late, took, _)| {
                    ((intended + late + took).min(until) - (*intended).max(from)).max(0)
                })
                .sum();
            prop_assert_eq!(counted.request_ns, sum);
            prop_assert_eq!(counted.measured_ns, (until - from).max(0));
            let carried = begun().filter(|(intended, late, took, fails)| {
                let end = intended + late + took;
                *fails && *intended < from && from <= end && end < stopped
            });
            let counted_carried = counted.carried_errors.get("reset").copied().unwrap_or(0);
            prop_assert_eq!(counted_carried, carried.count() as u64);
            let at = |edge: i64| {
                begun().filter(|(intended, late, took, _)| {
                    *intended < edge && edge <= intended + late + took
                }).count() as u64
            };
            prop_assert_eq!((counted.at_begin, counted.at_end), (at(from), at(until)));
        }
    }
}
