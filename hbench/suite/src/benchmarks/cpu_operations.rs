// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the CPU that depend on each other.

use std::hint::black_box;

use crate::arithmetic::{chains, real_chains, Number, Real, UNROLLED};
use crate::benchmark::{Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "cpu.operation",
    group: "cpu",
    operation: "one operation whose operand is the result of the one before it",
    variants: &[
        "integer-add",
        "integer-multiply",
        "integer-divide",
        "double-add",
        "double-multiply",
        "double-divide",
    ],
    by_name: &[
        "integer-bit",
        "integer-modulo",
        "integer32-bit",
        "integer32-add",
        "integer32-multiply",
        "integer32-divide",
        "integer32-modulo",
        "float-add",
        "float-multiply",
        "float-divide",
        "function-call",
    ],
    depends_on: &["CPU clock"],
    answers_to: &[
        "lmbench lat_ops (integer32 is its integer, integer its int64)",
        "lmbench mhz (an integer-add is a cycle)",
        "lmbench lat_proc procedure (function-call)",
        "LEBench cpu (double-divide)",
        "UnixBench arithmetic (parts)",
    ],
    verified_by: "the compiler may not leave any out (black_box)",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    const LARGE: u64 = 0x1234_5678_9abc_def1;
    const SMALL: u32 = 0x1234_5679;
    match variant {
        "integer-add" => whole(sampler, LARGE, 3, |a, b| a.wrapping_add(b)),
        "integer-multiply" => whole(sampler, LARGE, 3, |a, b| a.wrapping_mul(b)),
        "integer-divide" => whole(sampler, LARGE, 3, |a, b| (a | 1 << 60) / (b | 1)),
        "integer-modulo" => whole(sampler, LARGE, LARGE / 3, |a, b| (a | 1 << 60) % (b | 1)),
        "integer-bit" => whole(sampler, LARGE, 3, |a, b| a ^ b),
        "integer32-add" => whole(sampler, SMALL, 3, |a, b| a.wrapping_add(b)),
        "integer32-multiply" => whole(sampler, SMALL, 3, |a, b| a.wrapping_mul(b)),
        "integer32-divide" => whole(sampler, SMALL, 3, |a, b| (a | 1 << 30) / (b | 1)),
        "integer32-modulo" => whole(sampler, SMALL, SMALL / 3, |a, b| (a | 1 << 30) % (b | 1)),
        "integer32-bit" => whole(sampler, SMALL, 3, |a, b| a ^ b),
        "function-call" => whole(sampler, LARGE, 3, returned),
        "float-add" => real::<f32>(sampler, 1.000_001, |a, b| a + b),
        "float-multiply" => real::<f32>(sampler, 1.000_001, |a, b| a * b),
        "float-divide" => real::<f32>(sampler, 1.000_001, |a, b| a / b),
        "double-add" => real::<f64>(sampler, 1.000_000_1, |a, b| a + b),
        "double-multiply" => real::<f64>(sampler, 1.000_000_1, |a, b| a * b),
        _ => real::<f64>(sampler, 1.000_000_1, |a, b| a / b),
    }
}

/// A function that does nothing, and is called.
#[inline(never)]
fn returned(value: u64, _operand: u64) -> u64 {
    value.hidden()
}

fn whole<T: Number>(
    sampler: &mut Sampler,
    start: T,
    operand: T,
    operate: impl Fn(T, T) -> T,
) -> Result<Measured, Failure> {
    let mut value = [black_box(start)];
    let operand = black_box(operand);
    let measured = sampler.time(|n| {
        chains(&mut value, operand, n, &operate);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED))
}

fn real<T: Real>(
    sampler: &mut Sampler,
    operand: T,
    operate: impl Fn(T, T) -> T,
) -> Result<Measured, Failure> {
    let mut value = [black_box(T::START)];
    let operand = black_box(operand);
    let measured = sampler.time(|n| {
        real_chains(&mut value, operand, n, &operate);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED))
}
