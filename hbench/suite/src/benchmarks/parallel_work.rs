// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process takes while another one does the same on a second CPU: it is longer where the CPUs share a core, and
//! where something serves one process at a time, such as a tracer.

use std::hint::black_box;

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{self, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "parallel.work",
    group: "processes",
    operation:
        "one getppid, or one pass over some numbers, while another process does the same (or alone)",
    variants: &["null-call", "user-mode", "user-mode-alone"],
    by_name: &[],
    depends_on: &["call.null", "CPU cores"],
    answers_to: &["will-it-scale getppid1_processes (2 processes)"],
    verified_by: "the parent's process number, or the sum, is right",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    match variant {
        "null-call" => both(sampler, calls),
        "user-mode" => both(sampler, passes),
        _ => sampler.time(passes),
    }
}

fn both(sampler: &mut Sampler, work: fn(u64) -> Result<(), Failure>) -> Result<Measured, Failure> {
    const AT_ONCE: u64 = 1000;
    let cpu = sampler.second_cpu("two-cpus")?;
    let _other = Peer::start(cpu, move || loop {
        work(AT_ONCE)?;
    })?;
    sampler.time(work)
}

fn calls(n: u64) -> Result<(), Failure> {
    let parent = sys::ppid();
    let right = (0..n).filter(|_| sys::ppid() == parent).count() as u64;
    verify(right == n, || format!("{} other processes", n - right))
}

/// Independent additions, multiplications and loads: they keep several units of a core busy, as programs do.
fn passes(n: u64) -> Result<(), Failure> {
    const NUMBERS: usize = 512;
    let numbers: [u64; NUMBERS] = std::array::from_fn(|at| at as u64);
    let sum = |numbers: &[u64; NUMBERS]| {
        let squares = numbers.iter().map(|number| number.wrapping_mul(*number));
        squares.fold(0u64, u64::wrapping_add)
    };
    let wanted = (NUMBERS as u64 - 1) * NUMBERS as u64 * (2 * NUMBERS as u64 - 1) / 6;
    let right = (0..n)
        .filter(|_| sum(black_box(&numbers)) == wanted)
        .count() as u64;
    verify(right == n, || format!("{} wrong sums", n - right))
}
