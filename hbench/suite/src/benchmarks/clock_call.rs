// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking for the time, without entering the kernel where the vDSO allows it.

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "call.clock",
    group: "calls",
    operation: "clock_gettime(CLOCK_MONOTONIC_RAW)",
    variants: &[],
    by_name: &[],
    depends_on: &["clock source"],
    answers_to: &["libMicro gettimeofday", "LEBench ref (twice)"],
    verified_by: "the time does not run backwards",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    sampler.time(|n| {
        let mut last = 0;
        for _ in 0..n {
            let now = sys::monotonic_raw_ns();
            verify(now >= last, || "the time ran backwards".to_string())?;
            last = now;
        }
        Ok(())
    })
}
