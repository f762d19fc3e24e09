// SPDX-License-Identifier: MIT OR Apache-2.0
//! The latency of a load that depends on the one before it.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.latency",
    group: "memory",
    operation: "one load",
    variants: &["16K", "256K", "4M", "memory"],
    depends_on: &["caches", "memory", "TLB"],
    answers_to: &["lmbench lat_mem_rd"],
    verified_by: "the chain of loads returns to its start",
    measure,
};

/// Loads are this far apart, so that each has a cache line of its own, and no two lines that are fetched together.
const LINE: usize = 128;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let lines = bytes / LINE;
    // One cycle through all lines, in an order that no prefetcher knows (Sattolo's algorithm).
    let mut order: Vec<u64> = (0..lines as u64).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..lines).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random % at as u64) as usize);
    }
    let words = (LINE / 8) as u64;
    for (line, next) in order.iter().enumerate() {
        memory.all().set(line * LINE / 8, next * words);
    }
    let back = memory.all().follow(0, lines as u64);
    verify(back == 0, || format!("the chain ends at {back}"))?;
    let mut at = 0;
    sampler.time(|n| {
        at = memory.all().follow(at, n);
        Ok(())
    })
}
