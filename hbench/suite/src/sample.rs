// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of one sample.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::benchmark::Failure;
use crate::benchmarks::cases;
use crate::capture;
use crate::sampler::{Job, Measured, Ran, Sampler};
use crate::sys;

/// What the process writes in the end, as one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Measured {
        measured: Measured,
        /// The CPU that the process was bound to.
        cpu: Option<u32>,
        ran: Ran,
    },
    Unavailable {
        reason: String,
    },
    Wrong {
        reason: String,
    },
}

/// Takes the sample that `job` describes in JSON.
pub fn sample(job: &str) -> Result<()> {
    let mut job: Job = serde_json::from_str(job).context("it is no description of a sample")?;
    let case = cases()
        .into_iter()
        .find(|case| case.name() == job.benchmark);
    let case = case.with_context(|| format!("there is no benchmark {}", job.benchmark))?;
    let report = take_standard_output().context("cannot keep standard output for the result")?;
    if job.cpu.is_some_and(|cpu| sys::bind_to_cpu(cpu).is_err()) {
        job.cpu = None;
    }
    let cpu = job.cpu;
    let mut sampler = Sampler::new(job, report);
    let measured = (case.benchmark.measure)(&mut sampler, case.variant).and_then(possible);
    let outcome = match measured {
        Ok(measured) => Outcome::Measured {
            measured,
            cpu,
            ran: sampler.ran(),
        },
        Err(Failure::Unavailable(reason)) => Outcome::Unavailable { reason },
        Err(Failure::Wrong(reason)) => Outcome::Wrong { reason },
    };
    let line = serde_json::to_string(&outcome)?;
    writeln!(sampler.report(), "{line}").context("cannot report the result")
}

/// Refuses what no computer does as fast: the compiler has left out what was to be measured, since nothing needed its result.
/// A difference of two times may be anything, and so may what takes less than reading the clock.
fn possible(measured: Measured) -> Result<Measured, Failure> {
    /// Of an operation, in ns: hundreds of them in a cycle.
    const LEAST: f64 = 0.001;
    /// Bytes in a ns: more than all caches of a machine transfer.
    const MOST: f64 = 10_000.0;
    let ns = measured.operation_ns();
    let bytes = measured.bytes.unwrap_or(0) as f64;
    let is_impossible = ns < LEAST || bytes > ns * MOST;
    let is_difference =
        measured.baseline_ns.is_some() || measured.overhead_ns > measured.elapsed_ns / 2.0;
    if is_impossible && !is_difference {
        let reason = format!("{ns:.5} ns are too few for it: it was not carried out");
        return Err(Failure::Wrong(reason));
    }
    Ok(measured)
}

/// Says, as one line of JSON, where this process runs. `directory`: for temporary files.
pub fn describe(directory: &Path) -> Result<()> {
    let mut report =
        take_standard_output().context("cannot keep standard output for the result")?;
    let found = capture::environment(capture::allowed_cpus().last().copied(), directory);
    let line = serde_json::to_string(&found)?;
    writeln!(report, "{line}").context("cannot report the result")
}

/// Standard output is the runner's. Programs that a benchmark executes get one that discards.
fn take_standard_output() -> Result<File> {
    let null = File::options().write(true).open("/dev/null")?;
    // SAFETY: the copy is this function's alone, and dup2 replaces standard output as a whole.
    unsafe {
        let copy = libc::fcntl(libc::STDOUT_FILENO, libc::F_DUPFD_CLOEXEC, 3);
        ensure!(copy >= 0, "standard output is closed");
        let copy = OwnedFd::from_raw_fd(copy);
        let null = std::os::fd::AsRawFd::as_raw_fd(&null);
        ensure!(
            libc::dup2(null, libc::STDOUT_FILENO) >= 0,
            "it cannot be replaced"
        );
        Ok(File::from(copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_carried_out_is_no_measurement() {
        let measured = |iterations, elapsed_ns| Measured {
            iterations,
            elapsed_ns,
            ..Measured::default()
        };
        // An addition; and writing 256 KiB at 90 bytes in a ns.
        assert!(possible(measured(1000, 280.0)).is_ok());
        assert!(possible(measured(1000, 2.9e6).bytes(256 << 10)).is_ok());
        assert!(possible(measured(1 << 40, 280.0)).is_err());
        assert!(possible(measured(1000, 280.0).bytes(256 << 10)).is_err());
        let difference = Measured {
            baseline_ns: Some(5.0),
            ..measured(1000, 5e3)
        };
        assert!(possible(difference).is_ok());
        let short = Measured {
            overhead_ns: 290.0,
            ..measured(1000, 280.0)
        };
        assert!(possible(short).is_ok());
    }
}
