// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapping and unmapping without an access.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "map.anonymous",
    group: "faults",
    operation: "mmap and munmap of anonymous memory without an access",
    variants: &["4K", "4M"],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["libMicro mmap_anon (mmap_za)"],
    verified_by: "the calls do not fail",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    sampler.time(|n| {
        (0..n).try_for_each(|_| {
            Mapping::anonymous(bytes)
                .map(drop)
                .available("allocate memory")
        })
    })
}
