// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapping and unmapping a cached file.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "map.file",
    group: "faults",
    operation: "mmap of a file, the access to one word of every page, munmap",
    variants: &["4K", "1M", "4M"],
    by_name: &[],
    depends_on: &["call.null", "fault.page"],
    answers_to: &["lmbench lat_mmap", "libMicro mmap_r, unmap"],
    verified_by: "the sum of the words is right",
    measure,
};

const PAGE: usize = 4096;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let file = scratch::file(sampler.directory(), bytes, 1)?;
    let wanted = scratch::WORD.wrapping_mul((bytes / PAGE) as u64);
    sampler.time(|n| {
        for _ in 0..n {
            let memory = Mapping::of_file(&file, bytes).available("map a file")?;
            let sum = memory.all().sample(PAGE);
            verify(sum == wanted, || format!("a sum of {sum}"))?;
        }
        Ok(())
    })
}
