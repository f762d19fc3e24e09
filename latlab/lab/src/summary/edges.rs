//! Sums of good replies over the measured time, to check the count of requests in flight.

use std::collections::BTreeMap;

use latlab_analysis::in_flight::{InFlight, LittlesLaw};

use crate::load::Counted;

/// Sums of the times of good replies.
#[derive(Default)]
pub struct Edges {
    /// Time within the measured time.
    within_ns: i64,
    /// Time within the measured time of requests that began before it.
    carried_ns: i64,
    /// Time after the measured time of requests that began in it.
    after_ns: i64,
}

/// The summary's figures of good replies.
pub struct Good {
    /// Good replies that ended in the measured time.
    pub ended: u64,
    /// Good replies to requests intended to start in it.
    pub intended: u64,
    /// Mean latency of the latter, from the intended start.
    pub mean_ns: Option<f64>,
}

impl Edges {
    pub fn add(&mut self, intended_ns: i64, end_ns: i64, from_ns: i64, to_ns: i64) {
        let within = (end_ns.min(to_ns) - intended_ns.max(from_ns)).max(0);
        self.within_ns += within;
        match intended_ns < from_ns {
            true => self.carried_ns += within,
            false => self.after_ns += (end_ns - to_ns).max(0),
        }
    }

    /// `counted`: the counts of each generator process.
    pub fn in_flight(&self, counted: &[Counted], good: &Good) -> Option<InFlight> {
        let measured_ns = counted.iter().map(|one| one.measured_ns).max()?;
        if measured_ns <= 0 {
            return None;
        }
        let on_average = |ns: f64| ns / measured_ns as f64;
        let request_ns: i64 = counted.iter().map(|one| one.request_ns).sum();
        let mut carried_errors: BTreeMap<String, u64> = BTreeMap::new();
        for (name, times) in counted.iter().flat_map(|one| &one.carried_errors) {
            *carried_errors.entry(name.clone()).or_default() += times;
        }
        let mean = on_average(request_ns as f64);
        let unanswered_mean = on_average((request_ns - self.within_ns).max(0) as f64);
        let product = good.mean_ns.map(|ns| on_average(good.ended as f64 * ns));
        // If the number that began differs from the number that ended, the difference is also due
        // to the edges.
        let surplus = good.ended.abs_diff(good.intended) as f64 * good.mean_ns.unwrap_or(0.0);
        let edges = on_average((self.carried_ns + self.after_ns) as f64 + surplus);
        Some(InFlight {
            at_begin: counted.iter().map(|one| one.at_begin).sum(),
            at_end: counted.iter().map(|one| one.at_end).sum(),
            mean,
            unanswered_mean,
            carried_errors,
            throughput_times_latency: product,
            littles_law: LittlesLaw::check(mean, unanswered_mean, product, edges),
        })
    }
}
