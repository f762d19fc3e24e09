// SPDX-License-Identifier: MIT OR Apache-2.0
//! By how much a sleep is longer than was asked for.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "timer.late",
    group: "waiting",
    operation: "nanosleep, without the time that was asked for",
    variants: &["1us", "100us"],
    depends_on: &["timer slack", "context-switch"],
    answers_to: &["lmbench lat_usleep"],
    verified_by: "no sleep is shorter than was asked for",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let duration = kit_units::parse_duration(variant).map_err(Failure::Wrong)?;
    let asked_ns = duration.as_nanos() as f64;
    let measured = sampler
        .time(|n| (0..n).try_for_each(|_| sys::nanosleep(duration).available("nanosleep")))?;
    let late = Measured {
        baseline_ns: Some(asked_ns),
        ..measured
    };
    verify(late.operation_ns() > 0.0, || {
        "a sleep was too short".to_string()
    })?;
    Ok(late)
}
