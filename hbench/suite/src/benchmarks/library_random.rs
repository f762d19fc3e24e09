// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's random numbers.

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "library.random",
    group: "cpu",
    operation: "one random number of the C library",
    variants: &[],
    by_name: &["drand48", "lrand48", "rand", "random"],
    depends_on: &["CPU clock", "C library"],
    answers_to: &["lmbench lat_rand"],
    verified_by: "the mean is near the middle of the range",
    measure,
};

/// Fewer numbers may well have another mean.
const ENOUGH: u64 = 1000;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let end = f64::from(1u32 << 31);
    match variant {
        "drand48" => sampler.time(|n| is_middle((0..n).map(|_| sys::drand48()).sum(), n, 1.0)),
        "lrand48" => sampler.time(|n| is_middle(sum(n, sys::lrand48), n, end)),
        "rand" => sampler.time(|n| is_middle(sum(n, sys::rand), n, end)),
        _ => sampler.time(|n| is_middle(sum(n, sys::random), n, end)),
    }
}

#[inline(always)]
fn sum(n: u64, next: impl Fn() -> i64) -> f64 {
    // The sum of 2^32 numbers below 2^31 fits.
    (0..n).fold(0i64, |sum, _| sum.wrapping_add(next())) as f64
}

fn is_middle(sum: f64, n: u64, end: f64) -> Result<(), Failure> {
    let mean = sum / n as f64 / end;
    verify(n < ENOUGH || (0.4..0.6).contains(&mean), || {
        format!("a mean of {mean} of the range")
    })
}
