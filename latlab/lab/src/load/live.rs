//! The progress of a run, and the server's current performance, for display.

use serde::{Deserialize, Serialize};

use super::Delays;

/// A generator process's report of its progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoFar {
    pub rows: u64,
    pub failures: u64,
    /// Since the last report. `None` if the progress is not shown.
    #[serde(default)]
    pub recent: Option<Recent>,
}

/// Good replies of a short interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    pub ns: i64,
    /// Latencies from the intended start, with their frequencies.
    pub latencies: Vec<(u64, u64)>,
}

/// All processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Now {
    pub requests: u64,
    pub failures: u64,
    /// Good replies per second. `None` if the progress is not shown.
    pub rps: Option<f64>,
    /// `None` if there was no good reply in the interval.
    pub latency: Option<Latency>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    pub p50_ns: i64,
    pub p99_ns: i64,
}

impl Now {
    pub fn of(processes: &[SoFar]) -> Now {
        let recent = || processes.iter().filter_map(|so_far| so_far.recent.as_ref());
        let mut latencies = Delays::coarse();
        let mut rps = None;
        for recent in recent() {
            let replies: u64 = recent.latencies.iter().map(|(_, times)| times).sum();
            let its_rps = replies as f64 / (recent.ns.max(1) as f64 / 1e9);
            rps = Some(rps.unwrap_or(0.0) + its_rps);
            latencies.add(&recent.latencies);
        }
        Now {
            requests: processes.iter().map(|so_far| so_far.rows).sum(),
            failures: processes.iter().map(|so_far| so_far.failures).sum(),
            rps,
            latency: (!latencies.is_empty()).then(|| Latency {
                p50_ns: latencies.quantile(0.5),
                p99_ns: latencies.quantile(0.99),
            }),
        }
    }
}

/// Collects recent replies, in a generator process.
pub struct Watch {
    since_ns: i64,
    latencies: Delays,
}

impl Watch {
    pub fn new(now: i64) -> Watch {
        Watch {
            since_ns: now,
            latencies: Delays::coarse(),
        }
    }

    pub fn record(&mut self, latency_ns: i64) {
        self.latencies.record(latency_ns);
    }

    /// Takes what was collected since the last call.
    pub fn take(&mut self, now: i64) -> Recent {
        let recent = Recent {
            ns: now - self.since_ns,
            latencies: self.latencies.counts(),
        };
        self.since_ns = now;
        self.latencies.clear();
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn processes_are_added_up_and_only_what_is_recent_counts() {
        let mut watch = Watch::new(0);
        watch.record(7_000_000);
        watch.take(SECOND);
        for _ in 0..50 {
            watch.record(1_000_000);
        }
        let first = SoFar {
            rows: 51,
            failures: 2,
            recent: Some(watch.take(SECOND + SECOND / 2)),
        };
        for _ in 0..49 {
            watch.record(1_000_000);
        }
        watch.record(90_000_000);
        watch.record(90_000_000);
        let second = SoFar {
            rows: 9,
            failures: 0,
            recent: Some(watch.take(2 * SECOND)),
        };
        let now = Now::of(&[first, second, SoFar::default()]);
        assert_eq!((now.requests, now.failures), (60, 2));
        assert_eq!(now.rps, Some(202.0));
        let latency = now.latency.unwrap();
        let about = |ns: i64, right: i64| (ns - right).abs() * 100 <= right;
        assert!(about(latency.p50_ns, 1_000_000), "{latency:?}");
        assert!(about(latency.p99_ns, 90_000_000), "{latency:?}");
    }

    #[test]
    fn a_server_that_does_not_answer_has_a_rate_of_nothing() {
        let mut watch = Watch::new(0);
        let silent = SoFar {
            recent: Some(watch.take(SECOND)),
            ..SoFar::default()
        };
        let now = Now::of(&[silent]);
        assert_eq!((now.rps, now.latency), (Some(0.0), None));
        assert_eq!(Now::of(&[SoFar::default()]).rps, None);
    }
}
