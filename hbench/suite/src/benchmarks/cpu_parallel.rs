// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the CPU that do not depend on each other: how many it performs at the same time.

use std::hint::black_box;

use crate::arithmetic::{self, Real};
use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "cpu.parallel",
    group: "cpu",
    operation:
        "one operation, of eight chains that do not depend on each other (or on numbers in memory)",
    variants: &[],
    by_name: &[
        "integer-bit",
        "integer-add",
        "integer-multiply",
        "integer-divide",
        "integer-modulo",
        "float-add",
        "float-multiply",
        "float-divide",
        "double-add",
        "double-multiply",
        "double-divide",
        "float-formula",
        "double-formula",
    ],
    depends_on: &["cpu.operation"],
    answers_to: &[
        "lmbench par_ops",
        "lmbench lat_ops bogomflops (formula: (1 + x) (1.5 - x) / x)",
    ],
    verified_by:
        "the compiler may not leave any out (black_box); the formula's last result is right",
    measure,
};

const CHAINS: usize = 8;
/// Numbers of the formula: they fit into the first cache.
const NUMBERS: usize = 1000;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    match variant {
        "float-formula" => formula::<f32>(sampler, |x| (1.0 + x) * (1.5 - x) / x),
        "double-formula" => formula::<f64>(sampler, |x| (1.0 + x) * (1.5 - x) / x),
        operation => arithmetic::measure::<CHAINS>(sampler, operation),
    }
}

/// Of numbers in memory, one by one.
fn formula<T: Real + PartialEq + std::fmt::Debug>(
    sampler: &mut Sampler,
    compute: impl Fn(T) -> T,
) -> Result<Measured, Failure> {
    let numbers = black_box([T::START; NUMBERS]);
    let mut results = numbers;
    let measured = sampler.time(|n| {
        for _ in 0..n {
            for (result, number) in results.iter_mut().zip(&numbers) {
                // Hidden, as otherwise several would be computed by one instruction.
                *result = compute(number.hidden());
            }
            black_box(&mut results);
        }
        verify(results[NUMBERS - 1] == compute(T::START), || {
            format!("{:?}", results[NUMBERS - 1])
        })
    })?;
    Ok(measured.times(NUMBERS as u64))
}
