//! Requests as they are analysed, wherever they are from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::read::TimeUnit;
use crate::rows::Meta;

/// Requests of a run, at most: a small file can claim any number of them.
pub const REQUESTS_MAX: usize = 1 << 26;

/// What can be a part of a server's capacity: beyond it, too.
pub const LOADS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Reasons for failing that are told apart.
const REASONS_MAX: usize = 32;

/// A request that was answered in full and without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Where the latency begins, in ns since the start of the run; 0 where times are not known.
    pub begin_ns: i64,
    /// When it was really sent, on the same clock.
    pub sent_ns: i64,
    /// In ticks of the run's unit.
    pub latency: u64,
    /// Bytes of the response; [`Request::NO_SIZE`] where not known.
    pub size: u64,
    pub connection: u32,
    /// Of the steps of the rate, the one in which it was to start; 0 without steps.
    pub step: u16,
    /// Sent while the server was warming up: it is load, and no result.
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

/// What a latency is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Neither the file nor the magnitude of its latencies says: figures are as the file has them.
    Unstated,
}

impl Unit {
    /// Ticks of [`Request::latency`] in one unit.
    pub fn ticks(self) -> f64 {
        match self {
            Unit::Nanoseconds => 1.0,
            Unit::Unstated => 1e6,
        }
    }
}

/// From where to where a latency is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// From when the request was to be sent to its last byte: right for a load with a schedule
    Intended,
    /// From when the request was sent to its last byte
    Sent,
    /// From when the request was sent to its first byte
    FirstByte,
}

/// How the load was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A connection sends its next request when it has the answer.
    Closed,
    /// Requests are sent when they are due.
    Open,
}

/// The requests of one file.
#[derive(Debug)]
pub struct Run {
    pub path: PathBuf,
    /// What the file is: `latlab.requests/1`, `oha`, `vegeta`, `csv`, `ndjson`.
    pub format: &'static str,
    pub unit: Unit,
    /// The unit of the file's latencies where it does not say it and their magnitude does.
    pub unit_by_magnitude: Option<TimeUnit>,
    pub basis: Basis,
    /// In the order of the file.
    pub requests: Vec<Request>,
    /// Whether `begin_ns` and `sent_ns` mean something, and `connection`.
    pub has_times: bool,
    pub has_connections: bool,
    /// Connections that were in use in the measured time, whether or not a request on them is answered.
    pub connections_used: u64,
    /// The start of the run by the clock of its host, in ns since 1970.
    pub started_realtime_ns: Option<i64>,
    pub mode: Option<Mode>,
    /// Part of the server's capacity that was asked for.
    pub load: Option<f64>,
    pub offered_rps: Option<f64>,
    pub data_set_bytes: Option<u64>,
    /// Requests that were not answered, or with an error, by reason.
    pub failed: BTreeMap<String, u64>,
    /// How many of them were to start in each step of the rate.
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

    /// Adds an answered request, unless there are more than this program takes.
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

    /// The name by which people know the run.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(
            || self.path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    }
}
