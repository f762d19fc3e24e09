// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copying memory, word by word.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chunk, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.copy",
    group: "memory",
    operation: "copying a buffer to another of the same size",
    variants: &["16K", "256K", "4M", "memory"],
    by_name: &[],
    depends_on: &["memory.read", "memory.write"],
    answers_to: &["hbench-OS bw_mem_cp", "lmbench bw_mem fcp"],
    verified_by: "the copy's sum is that of the original",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    measure_copy(sampler, variant, |to, from| to.copy_from(from))
}

/// Takes a sample of a way to copy. `copy`: copies its second argument into the first.
pub fn measure_copy(
    sampler: &mut Sampler,
    variant: &str,
    copy: impl Fn(&Chunk, &Chunk),
) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    // Both buffers together have the size of the variant.
    let half = bytes / 2;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let (from, to) = (memory.chunk(0, half), memory.chunk(half, half));
    from.write(3);
    let measured = sampler.time(|n| {
        (0..n).for_each(|_| copy(&to, &from));
        let sum = to.read();
        verify(sum == 3 * (half / 8) as u64, || format!("a sum of {sum}"))
    })?;
    Ok(measured.bytes(half))
}
