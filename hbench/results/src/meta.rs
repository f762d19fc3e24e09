// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a result says of itself: `hbench.result/1`, as JSON in the Parquet file's footer.

use serde::{Deserialize, Serialize};

use crate::environment::{Environment, Noise};

/// Name and version; also the key of the JSON in the footer.
pub const SCHEMA: &str = "hbench.result/1";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The file was written between two rounds, and the run did not get further.
    Running,
    Complete,
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "source")]
pub enum Clock {
    /// The CPU's time-stamp counter.
    Tsc { ns_per_tick: f64, overhead_ns: f64 },
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`.
    MonotonicRaw { overhead_ns: f64 },
}

/// What is known of a benchmark without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// With its variant, if it has several: `memory.read/16K`.
    pub name: String,
    pub group: String,
    /// What one operation is.
    pub operation: String,
    /// Benchmarks, or parts of the machine, that it depends on.
    pub depends_on: Vec<String>,
    /// The rows of other suites that it answers to.
    pub answers_to: Vec<String>,
}

/// A benchmark without values, or without all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub benchmark: String,
    pub reason: String,
    /// `None`: all.
    pub round: Option<u32>,
    /// Whether its result was wrong, as opposed to its being unavailable here.
    pub is_wrong: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    pub schema: String,
    pub version: String,
    /// RFC 3339.
    pub started: String,
    pub duration_ns: u64,
    pub state: State,
    pub rounds: u32,
    pub rounds_done: u32,
    /// The time that each sample was to take.
    pub sample_ns: u64,
    /// Processes that measured at the same time, each on its own CPU.
    pub instances: u32,
    /// Samples that do not count, as not all of these processes ran during them.
    #[serde(default)]
    pub samples_dropped: u64,
    /// The command under which samples ran.
    pub under: Option<String>,
    pub clock: Clock,
    pub environment: Environment,
    pub noise: Noise,
    pub benchmarks: Vec<Declared>,
    pub left_out: Vec<LeftOut>,
}

/// One measurement of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub benchmark: String,
    /// From 0.
    pub round: u32,
    /// Of the processes that measured at the same time.
    pub instance: u32,
    /// The CPU that the process was bound to.
    pub cpu: Option<u32>,
    /// Since the start of the run.
    pub start_ns: u64,
    pub iterations: u64,
    /// As the clock showed it.
    pub elapsed_ns: f64,
    /// What reading the clock took of it.
    pub overhead_ns: f64,
    /// Time per operation of what had to be done beside the operation, measured in the same process.
    pub baseline_ns: Option<f64>,
    /// Time per operation: `(elapsed_ns - overhead_ns) / iterations - baseline_ns`.
    pub operation_ns: f64,
    /// Bytes that an operation transfers.
    pub bytes: Option<u64>,
    /// How long the process was ready and had no CPU.
    pub runqueue_ns: Option<u64>,
}
