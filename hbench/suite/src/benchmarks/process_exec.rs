// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new process that executes a program.

use crate::benchmark::{Benchmark, Failure};
use crate::hello;
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.exec",
    group: "processes",
    operation: "fork, execve of a program that says hello, and waiting for its end",
    variants: &["static", "dynamic"],
    by_name: &[],
    depends_on: &["process.fork", "fault.page", "map.file"],
    answers_to: &[
        "hbench-OS lat_proc simple (static, dynamic)",
        "lmbench lat_proc exec, lat_cmd",
        "UnixBench Execl Throughput",
    ],
    verified_by: "the program's exit status",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let program = hello::program(sampler.directory(), variant)?;
    sampler.shares_cpu();
    sampler.time(|n| (0..n).try_for_each(|_| program.run()))
}
