// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cheapest system call: into the kernel and back.

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "call.null",
    group: "calls",
    operation: "getppid",
    variants: &[],
    by_name: &[],
    depends_on: &["CPU clock", "mitigations"],
    answers_to: &[
        "lmbench lat_syscall null",
        "LEBench getpid",
        "hbench-OS lat_syscall",
        "libMicro getppid (getpid)",
    ],
    verified_by: "the parent's process number is right",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let parent = i64::from(std::os::unix::process::parent_id());
    sampler.time(|n| {
        let right = (0..n).filter(|_| sys::ppid() == parent).count() as u64;
        verify(right == n, || format!("{} other processes", n - right))
    })
}
