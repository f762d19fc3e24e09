// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading memory, word by word.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.read",
    group: "memory",
    operation: "reading the whole buffer",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[],
    depends_on: &["caches", "memory"],
    answers_to: &["hbench-OS bw_mem_rd", "lmbench bw_mem frd"],
    verified_by: "the sum of all words is right",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let words = (bytes / 8) as u64;
    let measured = sampler.time(|n| {
        let sums = (0..n).fold(0u64, |sum, _| sum.wrapping_add(memory.all().read()));
        verify(sums == words.wrapping_mul(n), || format!("a sum of {sums}"))
    })?;
    Ok(measured.bytes(bytes))
}
