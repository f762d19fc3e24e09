// SPDX-License-Identifier: MIT OR Apache-2.0
//! An application's characterization vector: what it asks of the operating system (`hbench.application/1`).

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Name and version.
pub const SCHEMA: &str = "hbench.application/1";

/// No program uses more primitives in more sizes.
const COMPONENTS_MAX: usize = 4096;
/// 26 days in ns, or 2 PB: so many of them can be added up.
const NUMBER_MAX: u64 = 1 << 51;

/// Calls of one primitive, of one class of sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// As in `mapping.toml`; `other.ioctl` for a call that no primitive stands for.
    pub primitive: String,
    /// The largest transfer of the class in bytes; null if the primitive transfers nothing, or without a limit.
    pub size: Option<u64>,
    pub calls: u64,
    /// Bytes that were transferred.
    pub bytes: u64,
    /// On the CPU inside the calls, as it was recorded.
    pub cpu_ns: u64,
    /// How often a thread slept in them.
    pub sleeps: u64,
}

/// Time in which no thread of the application could have run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// `disk.read`, `disk.write`, `disk.sync`, `timer`, or the class that DeBox gives the wait.
    pub kind: String,
    pub ns: u64,
    pub count: u64,
}

/// The recording. All times include what recording took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    pub kernel: String,
    pub cpus: u32,
    pub elapsed_ns: u64,
    pub processes: u64,
    pub threads: u64,
    pub calls: u64,
    /// Those that their thread made after it had computed for 15 us or more.
    #[serde(default)]
    pub calls_after_work: u64,
    /// On the CPU between calls.
    pub user_cpu_ns: u64,
    /// On the CPU inside calls.
    pub kernel_cpu_ns: u64,
    /// Page faults inside calls.
    pub faults_in_calls: u64,
    /// How many threads were not asleep, on average over the time in which one was not.
    pub overlap: f64,
    /// What the recording lacks, and so this vector: records, sleeps and threads.
    pub lost: u64,
}

/// One run without recording. The times are of all processes that the command waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
}

/// What recording adds to a call, from a program that makes only calls of `getppid`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tap {
    /// On the CPU inside a recorded `getppid`.
    pub inside_ns: f64,
    /// From the end of one to the start of the next.
    pub between_ns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    pub schema: String,
    pub version: String,
    pub command: Vec<String>,
    pub recording: Recording,
    pub components: Vec<Component>,
    pub waits: Vec<Wait>,
    /// Runs without recording; empty if there were none.
    pub runs: Vec<Run>,
    /// Null if it was not measured.
    pub tap: Option<Tap>,
    /// The vector of the machine on which it ran; null if it was not given.
    pub machine: Option<Machine>,
}

impl Application {
    /// # Errors
    ///
    /// It cannot be an application's vector.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.components.len() <= COMPONENTS_MAX && self.waits.len() <= COMPONENTS_MAX,
            "it has {} components",
            self.components.len().max(self.waits.len())
        );
        ensure!(
            self.runs.len() <= COMPONENTS_MAX,
            "it has {} runs",
            self.runs.len()
        );
        let overlap = self.recording.overlap;
        ensure!(
            overlap.is_finite() && (1.0..1e6).contains(&overlap),
            "{overlap} threads ran at the same time"
        );
        let whole = |number: u64| number < NUMBER_MAX;
        let recording = &self.recording;
        let times = [
            recording.elapsed_ns,
            recording.user_cpu_ns,
            recording.kernel_cpu_ns,
            recording.calls,
            recording.calls_after_work,
            recording.faults_in_calls,
        ];
        let of_runs = self
            .runs
            .iter()
            .flat_map(|run| [run.elapsed_ns, run.cpu_ns, run.faults_minor]);
        let of_components = self
            .components
            .iter()
            .flat_map(|one| [one.calls, one.bytes, one.cpu_ns, one.sleeps]);
        let of_waits = self.waits.iter().flat_map(|wait| [wait.ns, wait.count]);
        ensure!(
            times
                .into_iter()
                .chain(of_runs)
                .chain(of_components)
                .chain(of_waits)
                .all(whole),
            "a time or a number in it is longer than a program can run"
        );
        ensure!(
            self.runs
                .iter()
                .all(|run| run.elapsed_ns > 0 && run.cpu_ns > 0),
            "a run in it took no time"
        );
        if let Some(tap) = &self.tap {
            let is_time = |ns: f64| (0.0..1e9).contains(&ns);
            ensure!(
                is_time(tap.inside_ns) && is_time(tap.between_ns),
                "what recording adds to a call cannot be true"
            );
        }
        match &self.machine {
            Some(machine) => machine.check(),
            None => Ok(()),
        }
    }
}
