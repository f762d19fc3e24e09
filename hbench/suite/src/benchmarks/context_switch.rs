// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switching between processes, without the cost of their working sets (thesis, 2.2.4).

use crate::benchmark::{Available, Benchmark, Failure};
use crate::ring::Ring;
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "context-switch",
    group: "processes",
    operation: "one switch to the next process of a ring",
    variants: &[
        "2-processes-0K",
        "8-processes-0K",
        "2-processes-16K",
        "8-processes-16K",
        "8-processes-64K",
    ],
    by_name: &[],
    depends_on: &["CPU clock", "TLB", "mitigations"],
    answers_to: &["hbench-OS lat_ctx2"],
    verified_by: "each process receives the token with the number that the one before it sent",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let ring = Ring::of(variant, sampler)?;
    // The pieces of all processes lie in one region that all share. So what the one process of the comparison
    // reads has the same addresses, and the same places in the caches, as what the processes read.
    let region = Mapping::shared(ring.region_bytes()).available("allocate memory")?;
    region.all().write(1);
    ring.measure(sampler, |member| {
        region.chunk(member * ring.bytes, ring.bytes)
    })
}
