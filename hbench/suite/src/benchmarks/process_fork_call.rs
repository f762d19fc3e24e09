// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `fork` takes until it returns in the parent, by the number of memory areas.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Mapping, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.fork-call",
    group: "processes",
    operation: "fork, until it returns in the parent",
    variants: &[],
    by_name: &["small", "6000-areas", "12000-areas"],
    depends_on: &["process.fork"],
    answers_to: &["LEBench fork (small, big, huge)"],
    verified_by: "each child ends with the status that it should",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let areas = variant
        .split('-')
        .next()
        .and_then(|areas| areas.parse().ok());
    // Each is a file of its own to the kernel, so none are joined. None of them has a page.
    let areas = (0..areas.unwrap_or(0)).map(|_| Mapping::shared(4096));
    let areas: std::io::Result<Vec<Mapping>> = areas.collect();
    let _areas = areas.available("mmap")?;
    let cpu = sampler.second_cpu("one-cpu")?;
    sampler.shares_cpu();
    sampler.time_each(|watch| {
        let child = watch.time(1, || Peer::start(cpu, || Ok(())))?;
        child.end()
    })
}
