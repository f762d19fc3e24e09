// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a cached file, and every word that was read.

use std::fs::File;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.reread",
    group: "bulk transfer",
    operation: "one read, and the access to every word of it",
    variants: &["4K", "64K", "1M"],
    by_name: &["64K-open-to-close"],
    depends_on: &["call.null", "memory.copy-library", "memory.read"],
    answers_to: &[
        "hbench-OS bw_file_rd",
        "lmbench bw_file_rd io_only (64K), open2close (64K-open-to-close)",
    ],
    verified_by: "the sum of all words is right",
    measure,
};

/// More than the second cache has, as programs read files from one end to the other.
const FILE: usize = 8 << 20;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant.split('-').next().unwrap_or(variant))?;
    let memory = Mapping::filled(bytes).available("allocate memory")?;
    let wanted = scratch::WORD.wrapping_mul((bytes / 8) as u64);
    let reread = |file: &File, at: usize| {
        let read = memory.all().fill(file, at as u64);
        let read = read.available("read a file")?;
        let sum = memory.all().read();
        verify(read == bytes && sum == wanted, || {
            format!("{read} bytes, a sum of {sum}")
        })
    };
    if variant.ends_with("open-to-close") {
        let path = scratch::named_file(sampler.directory(), FILE, 1)?;
        let measured = sampler.time(|n| {
            for _ in 0..n {
                let file = File::open(&path).available("open a file")?;
                let mut pieces = (0..FILE).step_by(bytes);
                pieces.try_for_each(|at| reread(&file, at))?;
            }
            Ok(())
        })?;
        return Ok(measured.times((FILE / bytes) as u64).bytes(bytes));
    }
    let file = scratch::file(sampler.directory(), FILE, 1)?;
    let mut at = 0;
    let measured = sampler.time(|n| {
        for _ in 0..n {
            reread(&file, at)?;
            at = (at + bytes) % FILE;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}
