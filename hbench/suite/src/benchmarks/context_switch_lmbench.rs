// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switching between processes with the cost of their working sets, as lmbench does it.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::ring::Ring;
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "context-switch-with-working-set",
    group: "processes",
    operation: "one switch to the next process of a ring, which then reads its own memory",
    variants: &[
        "2-processes-0K",
        "8-processes-0K",
        "2-processes-16K",
        "8-processes-16K",
        "8-processes-64K",
    ],
    by_name: &[],
    depends_on: &["context-switch", "memory.read"],
    answers_to: &["hbench-OS lat_ctx", "lmbench lat_ctx"],
    verified_by: "each process receives the token with the number that the one before it sent",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let ring = Ring::of(variant, sampler)?;
    // A private page is copied when a process writes to it, so each process has memory of its own; the
    // comparison reads that of one process again and again, which stays in the cache.
    let own = Mapping::filled(ring.bytes.max(8)).available("allocate memory")?;
    ring.measure(sampler, |_| {
        own.all().write(1);
        own.chunk(0, ring.bytes)
    })
}
