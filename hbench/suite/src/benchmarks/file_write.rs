// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing again what is cached of a file.

use std::os::unix::fs::FileExt;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.rewrite",
    group: "bulk transfer",
    operation: "one write over cached pages",
    variants: &["4K", "64K"],
    by_name: &["40K", "4000K", "40000K"],
    depends_on: &["call.null", "memory.copy-library"],
    answers_to: &["LEBench write (small, mid, big, huge)"],
    verified_by: "all bytes are taken, and read back",
    measure,
};

const FILE: usize = 1 << 20;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    // A whole number of writes.
    let length = FILE.max(bytes).next_multiple_of(bytes);
    let file = scratch::file(sampler.directory(), length, 1)?;
    let buffer = vec![9u8; bytes];
    let mut at = 0;
    let measured = sampler.time(|n| {
        for _ in 0..n {
            let written = file
                .write_at(&buffer, at as u64)
                .available("write to a file")?;
            verify(written == bytes, || format!("{written} bytes"))?;
            at = (at + bytes) % length;
        }
        let mut back = [0u8];
        file.read_at(&mut back, 0).available("read a file")?;
        verify(back == [9], || "other bytes".to_string())
    })?;
    Ok(measured.bytes(bytes))
}
