//! The figures of a run: printed, drawn, and written as JSON (`latlab/schema/latlab-analysis-1.json`).

mod measure;
mod over_time;
mod steps;
mod whole;

use std::collections::BTreeMap;

use serde::Serialize;

pub use measure::{measure, Measured, Settings};
pub use over_time::Interval;
pub use steps::StepReport;
pub use whole::{Report, SCHEMA};

pub use crate::number::{Bounds, Number};

use crate::deciles::{Decile, Series};
use crate::fairness::Jain;
use crate::history::ServerHistory;
use crate::mode::Mode;
use crate::request::{Basis, Unit};
use crate::rows::Lateness;
use crate::stats::{Latency, Percentiles};

/// The figures of one file. Latencies are in `unit`.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    pub name: String,
    pub format: &'static str,
    pub unit: Unit,
    /// If the file does not state the unit of its latencies: the unit that was assumed from their magnitude.
    pub unit_by_magnitude: Option<&'static str>,
    /// Start and end of a latency.
    pub latency_from: Basis,
    pub mode: Option<Mode>,
    pub load: Option<f64>,
    pub offered_rps: Option<f64>,
    pub connections: Option<u64>,
    /// Connections in use in the measured time; null if connections are unknown.
    pub connections_used: Option<u64>,
    /// Those of them on which no request counts as answered.
    pub connections_unserved: Option<u64>,
    pub data_set_bytes: Option<u64>,
    /// Requests that were answered without an error after the warm-up. All other figures are about these.
    pub requests: u64,
    pub failed: BTreeMap<String, u64>,
    pub warm_up: u64,
    pub without_size: u64,
    pub seconds: Option<f64>,
    pub requests_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub latency: Latency,
    pub percentiles: Percentiles<Number>,
    /// Each step of the rate; empty if there is only one.
    pub steps: Vec<StepReport>,
    pub intervals: Intervals,
    pub service_inversion: Option<f64>,
    pub inversion: Option<Inversion>,
    pub jain: Jain,
    pub series: Vec<Series>,
    pub deciles: Vec<Decile>,
    /// `[latency, part of the requests that took no longer]`
    pub cdf: Vec<(Number, f64)>,
    /// Empty if times are unknown.
    pub over_time: Vec<Interval>,
    pub lateness: Option<Lateness>,
    pub generator_cpu: Option<f64>,
    /// Results from a history of the server.
    pub server: Option<ServerHistory>,
    pub caveats: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intervals {
    pub confidence: f64,
    pub mean: Bounds,
    #[serde(flatten)]
    pub percentiles: Percentiles<Bounds>,
}

/// Reference values for the service inversion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inversion {
    pub interval: Option<(f64, f64)>,
    /// Requests with the same latency as a request of another size.
    pub tied: u64,
    /// The value if all of these were in the wrong order.
    pub with_ties_against: f64,
    /// The value of a server that serves in random order.
    pub random: f64,
    /// The maximum for these sizes.
    pub reversed: f64,
    pub corrected: Option<Corrected>,
    /// Why there is no corrected form.
    pub not_corrected: Option<String>,
}

/// The inversion minus that of an ideal server with the same sizes and arrivals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Corrected {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    /// The ideal server's inversion.
    pub ideal: f64,
    /// Part of the time in which the ideal server has a request to serve.
    pub utilisation: f64,
    /// How requests arrived at it.
    pub arrivals: Mode,
}
