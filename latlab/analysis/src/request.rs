//! Requests in the form in which they are analyzed, from any source.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::mode::Mode;
use crate::read::TimeUnit;
use crate::rows::Meta;

/// Maximum number of requests in a run: a small file can claim any number of them.
pub const REQUESTS_MAX: usize = 1 << 26;

/// Accepted loads relative to the server's capacity, including overload.
pub const LOADS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Reasons for failure that are distinguished, at most.
const REASONS_MAX: usize = 32;

/// A request that was answered in full and without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Where the latency begins, in ns since the start of the run; 0 if times are unknown.
    pub begin_ns: i64,
    /// When the request was actually sent, on the same clock.
    pub sent_ns: i64,
    /// In ticks of the run's unit.
    pub latency: u64,
    /// Bytes of the response; [`Request::NO_SIZE`] if unknown.
    pub size: u64,
    pub connection: u32,
    /// The step of the rate in which it was intended to start; 0 without steps.
    pub step: u16,
    /// Sent during the warm-up: it is part of the load, but not of the results.
    pub is_warm_up: bool,
}

impl Request {
    pub const NO_SIZE: u64 = u64::MAX;

    pub fn has_size(&self) -> bool {
        self.size != Request::NO_SIZE
    }

    pub fn end_ns(&self) -> i64 {
        let latency = i64::try_from(self.latency).unwrap_or(i64::MAX);
        self.begin_ns.saturating_add(latency)
    }
}

/// The unit of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Unknown from the file and from the magnitude of its latencies: figures are shown as in the file.
    Unstated,
}

impl Unit {
    /// Ticks of [`Request::latency`] per unit.
    pub fn ticks(self) -> f64 {
        match self {
            Unit::Nanoseconds => 1.0,
            Unit::Unstated => 1e6,
        }
    }
}

/// Start and end of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// From when the request was intended to be sent to its last byte: correct for a load with a
    /// schedule
    Intended,
    /// From when the request was sent to its last byte
    Sent,
    /// From when the request was sent to its first byte
    FirstByte,
}

/// The requests of one file.
#[derive(Debug)]
pub struct Run {
    pub path: PathBuf,
    /// The file's format: `latlab.requests/1`, `oha`, `vegeta`, `csv`, `ndjson`.
    pub format: &'static str,
    pub unit: Unit,
    /// The unit that was derived from the latencies' magnitude, if the file does not state it.
    pub unit_by_magnitude: Option<TimeUnit>,
    pub basis: Basis,
    /// In the order of the file.
    pub requests: Vec<Request>,
    /// Whether `begin_ns` and `sent_ns` are known, and whether `connection` is.
    pub has_times: bool,
    pub has_connections: bool,
    /// Connections that were in use in the measured time, whether or not a request on them was
    /// answered.
    pub connections_used: u64,
    /// The start of the run by the clock of its host, in ns since 1970.
    pub started_realtime_ns: Option<i64>,
    pub mode: Option<Mode>,
    /// Load relative to the server's capacity.
    pub load: Option<f64>,
    pub offered_rps: Option<f64>,
    pub data_set_bytes: Option<u64>,
    /// Requests that were not answered, or with an error, by reason.
    pub failed: BTreeMap<String, u64>,
    /// How many of them were intended to start in each step of the rate.
    pub failed_in_steps: Vec<u64>,
    pub meta: Option<Meta>,
    pub caveats: Vec<String>,
}

impl Run {
    pub fn new(path: PathBuf, format: &'static str) -> Run {
        Run {
            path,
            format,
            unit: Unit::Nanoseconds,
            unit_by_magnitude: None,
            basis: Basis::Sent,
            requests: Vec::new(),
            has_times: false,
            has_connections: false,
            connections_used: 0,
            started_realtime_ns: None,
            mode: None,
            load: None,
            offered_rps: None,
            data_set_bytes: None,
            failed: BTreeMap::new(),
            failed_in_steps: Vec::new(),
            meta: None,
            caveats: Vec::new(),
        }
    }

    /// Adds an answered request, unless the maximum number is reached.
    pub fn push(&mut self, request: Request) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.requests.len() < REQUESTS_MAX,
            "it has more than {REQUESTS_MAX} requests, and no more are taken at once: analyse parts of it"
        );
        self.requests.push(request);
        Ok(())
    }

    pub fn fail(&mut self, reason: &str) {
        if let Some(count) = self.failed.get_mut(reason) {
            *count += 1;
        } else if self.failed.len() < REASONS_MAX {
            let mut reason: String = reason.chars().take(120).collect();
            if self.failed.contains_key(&reason) {
                reason.push('…');
            }
            *self.failed.entry(reason).or_default() += 1;
        } else {
            *self.failed.entry("other reasons".to_string()).or_default() += 1;
        }
    }

    /// The run's human-readable name.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(
            || self.path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    }
}
