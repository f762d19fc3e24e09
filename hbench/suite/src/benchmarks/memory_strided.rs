// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to one word of two: as many cache lines as with all words, and half as many instructions.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.strided",
    group: "memory",
    operation:
        "access to every second word of the buffer; reading and writing to its first four bytes",
    variants: &[],
    by_name: &["read-256K", "write-256K", "read-write-256K", "copy-256K"],
    depends_on: &["memory.read", "memory.write"],
    answers_to: &["lmbench bw_mem rd, wr, rdwr, cp"],
    verified_by: "the sum of what was read is right, or the sum of what was written",
    measure,
};

const BYTES: usize = 256 << 10;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let memory = Mapping::filled(BYTES).available("allocate memory")?;
    let all = memory.all();
    let accesses = (BYTES / 16) as u64;
    let sum_is = |sum: u64, wanted: u64| verify(sum == wanted, || format!("a sum of {sum}"));
    let measured = match variant {
        "read-256K" => sampler.time(|n| {
            let sums = (0..n).fold(0u64, |sum, _| sum.wrapping_add(all.read_half()));
            sum_is(sums, accesses.wrapping_mul(n))
        })?,
        "write-256K" => sampler.time(|n| {
            (0..n).for_each(|_| all.write_half(n));
            sum_is(all.read_half(), accesses.wrapping_mul(n))
        })?,
        "read-write-256K" => sampler.time(|n| {
            let sums = (0..n).fold(0u32, |sum, _| sum.wrapping_add(all.replace_quarter(1)));
            sum_is(u64::from(sums), u64::from(accesses.wrapping_mul(n) as u32))
        })?,
        _ => {
            // Both buffers together have the size.
            let half = BYTES / 2;
            let (from, to) = (memory.chunk(0, half), memory.chunk(half, half));
            from.write(3);
            let measured = sampler.time(|n| {
                (0..n).for_each(|_| to.copy_half_from(&from));
                sum_is(to.read_half(), 3 * accesses / 2)
            })?;
            return Ok(measured.bytes(half));
        }
    };
    Ok(measured.bytes(BYTES))
}
