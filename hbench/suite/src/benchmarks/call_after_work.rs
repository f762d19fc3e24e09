// SPDX-License-Identifier: MIT OR Apache-2.0
//! A system call of a program that has computed for a while. Sandboxes answer the calls that follow one another at once, and
//! have to be woken for those that do not.

use std::hint::black_box;

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "call.after-work",
    group: "calls",
    operation: "getppid after some 100 us of computing, which do not count",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null", "context-switch"],
    answers_to: &[],
    verified_by: "the parent's process number is right",
    measure,
};

/// Each multiplication waits for the one before it, 3 or 4 cycles.
const MULTIPLICATIONS: u32 = 100_000;

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let parent = i64::from(std::os::unix::process::parent_id());
    sampler.time_each(|watch| {
        let computed = (0..MULTIPLICATIONS).fold(1u64, |product, _| {
            black_box(product.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        black_box(computed);
        let found = watch.time(1, sys::ppid);
        verify(found == parent, || format!("process {found}"))
    })
}
