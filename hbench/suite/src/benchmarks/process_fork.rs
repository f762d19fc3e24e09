// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new process that ends at once.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{self, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.fork",
    group: "processes",
    operation: "fork, the child's exit, and waiting for it",
    variants: &["small", "16M", "64M"],
    by_name: &[],
    depends_on: &["fault.page", "context-switch", "memory.copy-library"],
    answers_to: &[
        "hbench-OS lat_proc null",
        "lmbench lat_proc fork",
        "UnixBench Process Creation",
        "libMicro fork_10",
    ],
    verified_by: "the child's exit status",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = match variant {
        "small" => 4096,
        size => sampler.size(size)?,
    };
    let _memory = Mapping::filled(bytes).available("allocate memory")?;
    sampler.shares_cpu();
    sampler.time(|n| (0..n).try_for_each(|_| sys::fork_and_wait()))
}
