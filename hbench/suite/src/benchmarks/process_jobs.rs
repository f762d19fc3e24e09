// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes that each do some work, as those that `make -j` starts.

use std::hint::black_box;

use crate::arithmetic::Number;
use crate::benchmark::{Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Peer;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "process.jobs",
    group: "processes",
    operation: "starting four processes that each perform 100,000 dependent multiplications, and waiting for them",
    variants: &[],
    by_name: &["one-cpu", "two-cpus"],
    depends_on: &["process.fork", "cpu.operation", "CPU cores"],
    answers_to: &["lmbench lat_pmake"],
    verified_by: "each process ends with the status that it should",
    measure,
};

const JOBS: usize = 4;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let cpus = [sampler.second_cpu("one-cpu")?, sampler.second_cpu(variant)?];
    sampler.shares_cpu();
    sampler.time(|n| {
        (0..n).try_for_each(|_| {
            let jobs = cpus.iter().cycle().take(JOBS);
            let jobs: Result<Vec<Peer>, Failure> =
                jobs.map(|cpu| Peer::start(*cpu, work)).collect();
            jobs?.into_iter().try_for_each(Peer::end)
        })
    })
}

fn work() -> Result<(), Failure> {
    let mut number = black_box(3u64);
    for _ in 0..100_000 {
        number = number.wrapping_mul(number.hidden() | 1);
    }
    black_box(number);
    Ok(())
}
