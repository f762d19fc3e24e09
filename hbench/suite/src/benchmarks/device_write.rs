// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing to a device that discards its data.

use std::fs::File;
use std::io::Write;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "call.write-null",
    group: "calls",
    operation: "writing to /dev/null",
    variants: &["1", "64K"],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &[
        "hbench-OS lat_syscall (null write)",
        "lmbench lat_syscall write",
        "libMicro write_n1",
    ],
    verified_by: "all bytes are taken",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let mut null = File::options()
        .write(true)
        .open("/dev/null")
        .available("open /dev/null")?;
    let buffer = vec![1u8; bytes];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            let written = null.write(&buffer).available("write")?;
            verify(written == bytes, || format!("{written} bytes"))?;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}
