// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking where nothing waits.

use std::sync::atomic::AtomicU32;

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "futex.wake-none",
    group: "waiting",
    operation: "FUTEX_WAKE of a word that nothing waits for",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["libMicro mutex_mt (part)"],
    verified_by: "nothing is woken",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let word = AtomicU32::new(0);
    sampler.time(|n| {
        let woken = (0..n).filter(|_| sys::futex_wake(&word) != 0).count();
        verify(woken == 0, || {
            format!("{woken} calls woke something, or failed")
        })
    })
}
