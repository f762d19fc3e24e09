// SPDX-License-Identifier: MIT OR Apache-2.0
//! `select` of many descriptors, of which one is ready.

use std::os::fd::AsRawFd;

use crate::benchmark::{Benchmark, Failure};
use crate::descriptors::{self, Connections};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "select.descriptors",
    group: "waiting",
    operation: "select without waiting",
    variants: &["10", "100", "500"],
    by_name: &["1000", "tcp-10", "tcp-100", "tcp-500", "tcp-1000"],
    depends_on: &["call.null"],
    answers_to: &[
        "lmbench lat_select (file, tcp)",
        "LEBench select",
        "libMicro select_10, select_100",
    ],
    verified_by: "one descriptor is ready",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    if let Some(count) = variant.strip_prefix("tcp-") {
        let connections = Connections::new(count)?;
        let numbers: Vec<i32> = connections.own.iter().map(AsRawFd::as_raw_fd).collect();
        return ask(sampler, &numbers);
    }
    let events = descriptors::events(variant)?;
    let descriptors = events.iter().map(|event| event.descriptor().as_raw_fd());
    ask(sampler, &descriptors.collect::<Vec<i32>>())
}

fn ask(sampler: &mut Sampler, numbers: &[i32]) -> Result<Measured, Failure> {
    sampler.time(|n| (0..n).try_for_each(|_| descriptors::one_is_ready(sys::select(numbers))))
}
