// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the CPU that depend on each other.

use std::hint::black_box;

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
    depends_on: &["CPU clock"],
    answers_to: &["lmbench lat_ops", "UnixBench arithmetic (parts)"],
    verified_by: "the compiler may not leave any out (black_box)",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    match variant {
        "integer-add" => whole(sampler, |a, b| a.wrapping_add(b)),
        "integer-multiply" => whole(sampler, |a, b| a.wrapping_mul(b)),
        "integer-divide" => whole(sampler, |a, b| (a | 1 << 60) / (b | 1)),
        "double-add" => real(sampler, |a, b| a + b),
        "double-multiply" => real(sampler, |a, b| a * b),
        _ => real(sampler, |a, b| a / b),
    }
}

const UNROLLED: u64 = 16;

fn whole(sampler: &mut Sampler, operate: impl Fn(u64, u64) -> u64) -> Result<Measured, Failure> {
    let mut value = black_box(0x1234_5678_9abc_def1u64);
    let operand = black_box(3u64);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            for _ in 0..UNROLLED {
                // Only the operand is hidden, so the value stays in its register.
                value = operate(value, in_register(operand));
            }
        }
        black_box(value);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED))
}

fn real(sampler: &mut Sampler, operate: impl Fn(f64, f64) -> f64) -> Result<Measured, Failure> {
    let mut value = black_box(1.5f64);
    let operand = black_box(1.000_000_1f64);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            for _ in 0..UNROLLED {
                value = operate(value, operand);
            }
            // Neither overflows nor becomes so small that it is slow.
            value = if value.abs() > 1e100 || value.abs() < 1e-100 {
                1.5
            } else {
                value
            };
        }
        black_box(value);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED))
}

/// The value, of which the compiler knows nothing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_register(mut value: u64) -> u64 {
    // SAFETY: there is no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

#[cfg(not(target_arch = "x86_64"))]
fn in_register(value: u64) -> u64 {
    black_box(value)
}
