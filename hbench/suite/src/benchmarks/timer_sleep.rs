// SPDX-License-Identifier: MIT OR Apache-2.0
//! By how much a sleep is longer than was asked for.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{self, IntervalTimer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "timer.late",
    group: "waiting",
    operation: "nanosleep, or another call that sleeps, without the time that was asked for",
    variants: &["1us", "100us"],
    by_name: &["select-100us", "pselect-100us", "itimer-100us"],
    depends_on: &["timer slack", "context-switch"],
    answers_to: &["lmbench lat_usleep (usleep is nanosleep)"],
    verified_by: "no sleep is shorter than was asked for",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (call, time) = variant.split_once('-').unwrap_or(("nanosleep", variant));
    let duration = kit_units::parse_duration(time).map_err(Failure::Wrong)?;
    let asked_ns = duration.as_nanos() as f64;
    let timer = IntervalTimer::new().available("sigprocmask")?;
    let sleep = || match call {
        "select" => sys::select_sleep(duration),
        "pselect" => sys::pselect_sleep(duration),
        "itimer" => timer.sleep(duration),
        _ => sys::nanosleep(duration),
    };
    let measured = sampler.time(|n| (0..n).try_for_each(|_| sleep().available(call)))?;
    let late = Measured {
        baseline_ns: Some(asked_ns),
        ..measured
    };
    verify(late.operation_ns() > 0.0, || {
        "a sleep was too short".to_string()
    })?;
    Ok(late)
}
