// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copying memory by the C library's `memmove`.

use super::memory_copy::measure_copy;
use crate::benchmark::{Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.copy-library",
    group: "memory",
    operation: "copying a buffer to another of the same size",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[],
    depends_on: &["memory.read", "memory.write"],
    answers_to: &["hbench-OS bw_bcopy (bcopy)", "lmbench bw_mem bcopy"],
    verified_by: "the copy's sum is that of the original",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    measure_copy(sampler, variant, |to, from| to.copy_by_library(from))
}
