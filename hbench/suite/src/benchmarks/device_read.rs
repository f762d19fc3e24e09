// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading from a device that makes its data.

use std::fs::File;
use std::io::Read;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "call.read-zero",
    group: "calls",
    operation: "reading from /dev/zero",
    variants: &["1", "4K", "64K"],
    by_name: &[],
    depends_on: &["call.null", "memory.clear"],
    answers_to: &["lmbench lat_syscall read", "libMicro read_z1"],
    verified_by: "all bytes are read",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let mut zero = File::open("/dev/zero").available("open /dev/zero")?;
    let mut buffer = vec![1u8; bytes];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            let read = zero.read(&mut buffer).available("read")?;
            verify(read == bytes, || format!("{read} bytes"))?;
        }
        verify(buffer.iter().all(|byte| *byte == 0), || {
            "other bytes".to_string()
        })
    })?;
    Ok(measured.bytes(bytes))
}
