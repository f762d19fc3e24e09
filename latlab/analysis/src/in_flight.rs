//! Requests in flight in the measured time of a run, and a check with Little's law.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Throughput times latency may differ from the number of requests in flight by this share.
const TOLERANCE: f64 = 0.05;

/// What `latlab` counted while the load ran, compared with its other figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Requests in flight (due, and not completed) at the beginning of the measured time, and at
    /// its end.
    pub at_begin: u64,
    pub at_end: u64,
    /// Average over the measured time, counted by the generator while it ran.
    pub mean: f64,
    /// The part of `mean` due to requests that were not answered well, including those of the
    /// warm-up.
    pub unanswered_mean: f64,
    /// Requests of the warm-up that were in flight at the beginning of the measured time and failed
    /// after it. No other figure includes them.
    pub carried_errors: BTreeMap<String, u64>,
    /// Throughput times mean latency, from the summary's figures; `None` if no request was
    /// answered.
    pub throughput_times_latency: Option<f64>,
    /// `None` if nothing was in flight.
    pub littles_law: Option<LittlesLaw>,
}

/// Whether the number of requests in flight equals throughput times mean latency (N = X R).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LittlesLaw {
    Holds,
    Fails,
    /// Requests that cross an edge of the measured time account for the difference.
    TooShort,
}

impl LittlesLaw {
    /// `edges`: the part of the difference that requests partly outside the measured time can
    /// cause.
    pub fn check(
        mean: f64,
        unanswered_mean: f64,
        throughput_times_latency: Option<f64>,
        edges: f64,
    ) -> Option<LittlesLaw> {
        if mean <= 0.0 {
            return None;
        }
        let difference = (mean - throughput_times_latency.unwrap_or(0.0)).abs();
        let allowed = TOLERANCE * mean;
        Some(if difference <= allowed {
            LittlesLaw::Holds
        } else if unanswered_mean <= allowed && difference <= allowed + edges {
            LittlesLaw::TooShort
        } else {
            LittlesLaw::Fails
        })
    }
}

/// `reset 1, timeout 8`
pub fn listed<K: std::fmt::Display>(errors: &BTreeMap<K, u64>) -> String {
    let errors = errors
        .iter()
        .map(|(name, times)| format!("{name} {}", kit_units::count(*times)));
    errors.collect::<Vec<_>>().join(", ")
}

impl InFlight {
    pub fn carried(&self) -> u64 {
        let errors = self.carried_errors.values();
        errors.fold(0, |sum, times| sum.saturating_add(*times))
    }

    /// Warnings that a reader needs before relying on the figures.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.carried() > 0 {
            all.push(format!(
                "{} of the {} requests that were in flight when the measured time began failed after \
                 that ({}): they are in no other figure.",
                kit_units::count(self.carried()),
                kit_units::count(self.at_begin),
                listed(&self.carried_errors)
            ));
        }
        let product = self.throughput_times_latency.unwrap_or(0.0);
        match self.littles_law {
            Some(LittlesLaw::Fails) => {
                let why = if self.unanswered_mean > TOLERANCE * self.mean {
                    format!(
                        "{:.1} of them are requests that were not answered well",
                        self.unanswered_mean
                    )
                } else {
                    format!(
                        "{} were in flight when the measured time began, and {} when it ended",
                        kit_units::count(self.at_begin),
                        kit_units::count(self.at_end)
                    )
                };
                all.push(format!(
                    "Little's law fails: {:.1} requests were in flight on average, and throughput times mean \
                     latency accounts for {product:.1}; {why}.",
                    self.mean
                ));
            }
            Some(LittlesLaw::TooShort) => all.push(format!(
                "Little's law cannot be checked ({:.1} requests in flight on average, throughput times mean \
                 latency {product:.1}): the measured time is too short for requests that take this long.",
                self.mean
            )),
            Some(LittlesLaw::Holds) | None => {}
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_at_the_edges_is_no_failure_and_what_hangs_is() {
        use LittlesLaw::{Fails, Holds, TooShort};
        let check = |mean, unanswered, product, edges| {
            LittlesLaw::check(mean, unanswered, Some(product), edges)
        };
        assert_eq!(check(64.0, 0.0, 63.0, 0.0), Some(Holds));
        assert_eq!(check(64.0, 8.0, 56.0, 0.1), Some(Fails));
        assert_eq!(check(64.0, 8.0, 56.0, 20.0), Some(Fails));
        assert_eq!(check(4.0, 0.0, 3.0, 1.5), Some(TooShort));
        assert_eq!(check(4.0, 0.0, 8.0, 1.5), Some(Fails));
        assert_eq!(check(0.0, 0.0, 0.0, 0.0), None);
        assert_eq!(LittlesLaw::check(1.0, 1.0, None, 0.0), Some(Fails));
    }
}
