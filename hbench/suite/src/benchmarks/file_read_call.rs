// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a cached file, without access to what was read.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.read-call",
    group: "bulk transfer",
    operation: "one read of a whole cached file",
    variants: &[],
    by_name: &["4K", "40K", "4000K", "40000K"],
    depends_on: &["call.null", "memory.copy-library"],
    answers_to: &["LEBench read (small, mid, big, huge)"],
    verified_by: "all bytes are read, and the last is right",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let file = scratch::file(sampler.directory(), bytes, 1)?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let last = memory.chunk(bytes - 8, 8);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            last.write(0);
            let read = memory.all().fill(&file, 0).available("read a file")?;
            verify(read == bytes && last.read() == scratch::WORD, || {
                format!("{read} bytes, {:#x} at the end", last.read())
            })?;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}
