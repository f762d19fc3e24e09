// SPDX-License-Identifier: MIT OR Apache-2.0
//! `select` of many descriptors, of which one is ready.

use std::os::fd::AsRawFd;

use crate::benchmark::{Benchmark, Failure};
use crate::descriptors;
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "select.descriptors",
    group: "waiting",
    operation: "select without waiting",
    variants: &["10", "100", "500"],
    depends_on: &["call.null"],
    answers_to: &[
        "lmbench lat_select",
        "LEBench select",
        "libMicro select_10, select_100",
    ],
    verified_by: "one descriptor is ready",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let events = descriptors::events(variant)?;
    let numbers: Vec<i32> = events
        .iter()
        .map(|event| event.descriptor().as_raw_fd())
        .collect();
    sampler.time(|n| (0..n).try_for_each(|_| descriptors::one_is_ready(sys::select(&numbers))))
}
