//! What good replies add up to over the measured time, to check the count of requests in flight by.

use std::collections::BTreeMap;

use latlab_analysis::in_flight::{InFlight, LittlesLaw};

use crate::load::Counted;

/// Times of good replies, added up.
#[derive(Default)]
pub struct Edges {
    /// In the measured time.
    within_ns: i64,
    /// In the measured time, of those that began before it.
    carried_ns: i64,
    /// After the measured time, of those that began in it.
    after_ns: i64,
}

/// What the summary says of good replies.
pub struct Good {
    /// Ended in the measured time.
    pub ended: u64,
    /// Intended to start in it.
    pub intended: u64,
    /// Mean latency of these, from the intended start.
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

    /// `counted`: by each generator process.
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
        // More began in the measured time than ended in it, or less: that is at its edges, too.
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
