// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the CPU that do not depend on each other: how many it performs at the same time.

use std::hint::black_box;

use crate::arithmetic::{chains, real_chains, Number, Real, UNROLLED};
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
    const LARGE: u64 = 0x1234_5678_9abc_def1;
    match variant {
        "integer-bit" => whole(sampler, LARGE, 3, |a, b| a ^ b),
        "integer-add" => whole(sampler, LARGE, 3, |a, b| a.wrapping_add(b)),
        "integer-multiply" => whole(sampler, LARGE, 3, |a, b| a.wrapping_mul(b)),
        "integer-divide" => whole(sampler, LARGE, 3, |a, b| (a | 1 << 60) / (b | 1)),
        "integer-modulo" => whole(sampler, LARGE, LARGE / 3, |a, b| (a | 1 << 60) % (b | 1)),
        "float-add" => real::<f32>(sampler, 1.000_001, |a, b| a + b),
        "float-multiply" => real::<f32>(sampler, 1.000_001, |a, b| a * b),
        "float-divide" => real::<f32>(sampler, 1.000_001, |a, b| a / b),
        "double-add" => real::<f64>(sampler, 1.000_000_1, |a, b| a + b),
        "double-multiply" => real::<f64>(sampler, 1.000_000_1, |a, b| a * b),
        "double-divide" => real::<f64>(sampler, 1.000_000_1, |a, b| a / b),
        "float-formula" => formula::<f32>(sampler, |x| (1.0 + x) * (1.5 - x) / x),
        _ => formula::<f64>(sampler, |x| (1.0 + x) * (1.5 - x) / x),
    }
}

fn whole<T: Number>(
    sampler: &mut Sampler,
    start: T,
    operand: T,
    operate: impl Fn(T, T) -> T,
) -> Result<Measured, Failure> {
    let mut values = [black_box(start); CHAINS];
    let operand = black_box(operand);
    let measured = sampler.time(|n| {
        chains(&mut values, operand, n, &operate);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED * CHAINS as u64))
}

fn real<T: Real>(
    sampler: &mut Sampler,
    operand: T,
    operate: impl Fn(T, T) -> T,
) -> Result<Measured, Failure> {
    let mut values = [black_box(T::START); CHAINS];
    let operand = black_box(operand);
    let measured = sampler.time(|n| {
        real_chains(&mut values, operand, n, &operate);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED * CHAINS as u64))
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
