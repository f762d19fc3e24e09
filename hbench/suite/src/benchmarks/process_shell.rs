// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that a shell starts.

use crate::benchmark::{Benchmark, Failure};
use crate::hello;
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.shell",
    group: "processes",
    operation: "fork, execve of /bin/sh -c with a program that says hello, and waiting for its end",
    variants: &["static", "dynamic"],
    by_name: &[],
    depends_on: &["process.exec"],
    answers_to: &[
        "hbench-OS lat_proc sh (static, dynamic)",
        "lmbench lat_proc shell",
        "UnixBench Shell Scripts (part)",
    ],
    verified_by: "the program's exit status",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let program = hello::by_shell(sampler.directory(), variant)?;
    sampler.shares_cpu();
    sampler.time(|n| (0..n).try_for_each(|_| program.run()))
}
