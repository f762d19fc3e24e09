// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing memory, word by word.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.write",
    group: "memory",
    operation: "writing the whole buffer",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[],
    depends_on: &["caches", "memory"],
    answers_to: &["hbench-OS bw_mem_wr", "lmbench bw_mem fwr"],
    verified_by: "a word has the last value written",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let measured = sampler.time(|n| {
        (1..=n).for_each(|round| memory.all().write(round));
        let last = memory.chunk(bytes - 8, 8).read();
        verify(last == n, || format!("{last} where {n} was written"))
    })?;
    Ok(measured.bytes(bytes))
}
