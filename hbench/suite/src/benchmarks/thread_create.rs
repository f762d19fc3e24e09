// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new thread that ends at once.

use std::thread;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "thread.create",
    group: "processes",
    operation: "pthread_create, and joining the thread",
    variants: &[],
    by_name: &[],
    depends_on: &["context-switch", "futex.wake"],
    answers_to: &["LEBench thread create", "libMicro pthread_create"],
    verified_by: "the thread's result",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    sampler.shares_cpu();
    sampler.time(|n| {
        for number in 0..n {
            let thread = thread::Builder::new().spawn(move || number);
            let result = thread.available("create a thread")?.join();
            verify(result.is_ok_and(|got| got == number), || {
                "another result".to_string()
            })?;
        }
        Ok(())
    })
}
