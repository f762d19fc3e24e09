// SPDX-License-Identifier: MIT OR Apache-2.0
//! The latency of a load that depends on the one before it.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::chain::{link, Disorder};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chains, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.latency",
    group: "memory",
    operation: "one load",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[
        "8K", "32K", "64K", "128K", "512K", "1M", "2M", "8M", "16M", "32M",
    ],
    depends_on: &["caches", "memory", "TLB"],
    answers_to: &[
        "lmbench lat_mem_rd",
        "lmbench cache (the sizes at which the time rises)",
    ],
    verified_by: "the chain of loads returns to its start",
    measure,
};

/// Loads are this far apart, so that each has a cache line of its own, and no two lines that are fetched together.
const LINE: usize = 128;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let chains = Chains::new(Mapping::filled(bytes).available("allocate memory")?);
    let order = Disorder::new().order(bytes / LINE);
    let words = order.iter().map(|line| *line as usize * LINE / 8);
    let mut at = link(&chains, words)?;
    sampler.time(|n| {
        at = at.follow(n);
        Ok(())
    })
}
