// SPDX-License-Identifier: MIT OR Apache-2.0
//! `epoll_wait` of many descriptors, of which one is ready.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::descriptors;
use crate::sampler::{Measured, Sampler};
use crate::sys::Epoll;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "epoll.descriptors",
    group: "waiting",
    operation: "epoll_wait without waiting",
    variants: &["10", "100", "500"],
    by_name: &["1000"],
    depends_on: &["call.null"],
    answers_to: &["LEBench epoll"],
    verified_by: "one descriptor is ready",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let events = descriptors::events(variant)?;
    let epoll = Epoll::new().available("epoll_create1")?;
    for event in &events {
        epoll.add(event.descriptor()).available("epoll_ctl")?;
    }
    let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 16];
    sampler.time(|n| (0..n).try_for_each(|_| descriptors::one_is_ready(epoll.ready(&mut ready))))
}
