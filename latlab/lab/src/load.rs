//! The load generator: one thread, one epoll descriptor, thousands of connections.
//!
//! It does not use an HTTP library, because its own costs and delays have to be known. It records each
//! request's intended start regardless of what happens to the request, and measures its own lateness.

mod arrivals;
mod connection;
mod engine;
mod in_flight;
mod live;
mod transport;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::rows::Lateness;
use crate::tls::Tls;
use crate::workload::{Shape, Spec};

pub use arrivals::{Arrivals, Rates, Step};
pub use engine::run;
pub use in_flight::Counted;
pub use live::{Latency, Now, SoFar};

/// When requests start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "loop")]
pub enum Mode {
    /// Each connection asks again this long after its last reply.
    Closed { think_ns: i64 },
    /// Like `Closed`, and each connection asks for at most this many bits per second, as SPECweb99's do.
    Paced { bits_per_second: u64 },
    /// At these rates, regardless of the server.
    Open { steps: Vec<Step>, poisson: bool },
    /// At these times since the start of the run, in this order, regardless of the server.
    Replay { starts: Vec<i64> },
}

/// The task of one generator process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    pub address: SocketAddr,
    pub host: String,
    pub tls: Option<Tls>,
    pub spec: Spec,
    pub shape: Shape,
    pub seed: u64,
    pub checked_share: f64,
    pub process: u16,
    pub processes: u16,
    /// Connections of this process: exactly this many in a closed loop, at most this many in an open
    /// one.
    pub connections: u32,
    pub mode: Mode,
    pub requests_per_connection: Option<u32>,
    pub timeout_ns: i64,
    pub duration_ns: i64,
    /// Maximum number of requests.
    pub requests: Option<u64>,
    /// Requests intended to start before this time do not count for the clients' rates.
    pub warmup_ns: i64,
    /// When to start, on the clock of `sys::now_ns`.
    pub start_at_ns: i64,
    pub spool: PathBuf,
    /// Whether the progress is shown.
    pub watched: bool,
}

/// The generator's side of the result.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Delays of request starts, with their frequencies.
    pub lateness: Vec<(u64, u64)>,
    /// Delays between the wake-up for a reply and its processing, with their frequencies.
    pub reply_lateness: Vec<(u64, u64)>,
    pub cpu_ns: i64,
    /// Time in which the generator waited for a CPU.
    pub runqueue_ns: i64,
    pub wall_ns: i64,
    pub rows: u64,
    pub failures: u64,
    pub opened: u64,
    /// Requests that were sent again because the server had just closed an idle connection.
    pub retried: u64,
    /// Those of them whose connection the server had reset.
    pub retried_after_reset: u64,
    pub in_flight: Counted,
    /// Bytes that came without a request.
    pub unsolicited: u64,
    /// For each client, the bytes of its good replies, and the time that they took, including the pauses
    /// after them.
    pub clients: Vec<(u64, i64)>,
    /// Replies with a status of 3xx, by status, after the warm-up.
    #[serde(default)]
    pub redirects: BTreeMap<u16, u64>,
    /// Target of the first redirect.
    #[serde(default)]
    pub location: Option<String>,
    /// TLS version and cipher suite of the first connection.
    #[serde(default)]
    pub tls: Option<String>,
    /// The first TLS error.
    #[serde(default)]
    pub tls_error: Option<String>,
    pub interrupted: bool,
    pub spool_error: Option<String>,
}

/// A histogram of delays.
pub struct Delays(Histogram<u64>);

/// Longer delays are counted as this one.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for Delays {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Delays(histogram.unwrap_or_else(|_| unreachable!("the bounds are right")))
    }
}

impl Delays {
    /// At most 1 % off, and quick to iterate over.
    pub fn coarse() -> Delays {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 2);
        Delays(histogram.unwrap_or_else(|_| unreachable!("the bounds are right")))
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    pub fn record(&mut self, ns: i64) {
        self.record_times(u64::try_from(ns).unwrap_or(0), 1);
    }

    fn record_times(&mut self, ns: u64, times: u64) {
        self.0.saturating_record_n(ns, times);
    }

    pub fn counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    }

    pub fn add(&mut self, counts: &[(u64, u64)]) {
        for (ns, times) in counts {
            self.record_times(*ns, *times);
        }
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    pub fn quantile(&self, quantile: f64) -> i64 {
        self.0.value_at_quantile(quantile) as i64
    }

    pub fn max(&self) -> i64 {
        self.0.max() as i64
    }

    pub fn lateness(&self) -> Lateness {
        Lateness {
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            max_ns: self.max(),
        }
    }
}
