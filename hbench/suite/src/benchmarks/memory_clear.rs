// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clearing memory by the C library's `memset`.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.clear",
    group: "memory",
    operation: "clearing the whole buffer",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[],
    depends_on: &["memory.write"],
    answers_to: &["lmbench bw_mem bzero"],
    verified_by: "a word is zero",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let measured = sampler.time(|n| {
        (0..n).for_each(|_| memory.all().clear_by_library());
        let word = memory.chunk(bytes - 8, 8).read();
        verify(word == 0, || format!("{word} where nothing should be"))
    })?;
    Ok(measured.bytes(bytes))
}
