// SPDX-License-Identifier: MIT OR Apache-2.0
//! `poll` of many descriptors, of which one is ready.

use std::os::fd::AsRawFd;

use crate::benchmark::{Benchmark, Failure};
use crate::descriptors;
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "poll.descriptors",
    group: "waiting",
    operation: "poll without waiting",
    variants: &["10", "100", "500"],
    by_name: &["1000"],
    depends_on: &["call.null"],
    answers_to: &["LEBench poll", "libMicro poll_10, poll_100"],
    verified_by: "one descriptor is ready",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let events = descriptors::events(variant)?;
    let mut polled: Vec<libc::pollfd> = events
        .iter()
        .map(|event| libc::pollfd {
            fd: event.descriptor().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    sampler.time(|n| (0..n).try_for_each(|_| descriptors::one_is_ready(sys::poll(&mut polled))))
}
