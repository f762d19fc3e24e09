// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new process by `posix_spawn`, which copies no page tables.

use crate::benchmark::{Benchmark, Failure};
use crate::hello;
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.spawn",
    group: "processes",
    operation: "posix_spawn of a program that says hello, and waiting for its end",
    variants: &["static"],
    by_name: &[],
    depends_on: &["process.exec"],
    answers_to: &[],
    verified_by: "the program's exit status",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let program = hello::program(sampler.directory(), variant)?;
    sampler.shares_cpu();
    sampler.time(|n| (0..n).try_for_each(|_| program.spawn()))
}
