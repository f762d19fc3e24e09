// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on numbers that the compiler knows nothing about, and keeps in their registers.

use std::hint::black_box;

use crate::benchmark::Failure;
use crate::sampler::{Measured, Sampler};

pub trait Number: Copy {
    /// The number, of which the compiler knows nothing.
    fn hidden(self) -> Self;
}

macro_rules! hidden_in {
    ($class:ident, $template:literal: $($kind:ty),*) => { $(
        impl Number for $kind {
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            fn hidden(mut self) -> Self {
                // SAFETY: there is no instruction.
                unsafe {
                    std::arch::asm!($template, inout($class) self, options(pure, nomem, nostack, preserves_flags));
                }
                self
            }

            #[cfg(not(target_arch = "x86_64"))]
            fn hidden(self) -> Self {
                black_box(self)
            }
        }
    )* };
}

hidden_in!(reg, "/* {0:r} */": u64, u32);
hidden_in!(xmm_reg, "/* {0} */": f64, f32);

/// Numbers of a kind whose repeated operation neither overflows nor becomes so small that it is slow.
pub trait Real: Number {
    const START: Self;
    fn is_extreme(self) -> bool;
}

impl Real for f64 {
    const START: f64 = 1.5;

    fn is_extreme(self) -> bool {
        !(1e-100..=1e100).contains(&self.abs())
    }
}

impl Real for f32 {
    const START: f32 = 1.5;

    fn is_extreme(self) -> bool {
        !(1e-15..=1e15).contains(&self.abs())
    }
}

/// Operations of a loop without a test between them. A test of every sixteenth would be an eighth of an addition's time.
const UNROLLED: u64 = 64;

/// Without it, the compiler would compute the sum of many additions at once.
#[inline(always)]
fn step<T: Number>(value: T, operand: T, operate: impl Fn(T, T) -> T) -> T {
    match cfg!(target_arch = "x86_64") {
        true => operate(value, operand).hidden(),
        // There hiding takes the way through memory, which is not to be in the chain.
        false => operate(value, operand.hidden()),
    }
}

/// Performs `n` times [`UNROLLED`] operations on each of the values, whose chains do not depend on each other. After each
/// of the `n` times, a value is what `renewed` makes of it.
#[inline(always)]
fn chains<T: Number, const CHAINS: usize>(
    values: &mut [T; CHAINS],
    operand: T,
    n: u64,
    operate: impl Fn(T, T) -> T + Copy,
    renewed: impl Fn(T) -> T + Copy,
) {
    let mut own = *values;
    for _ in 0..n {
        for _ in 0..UNROLLED {
            for value in &mut own {
                *value = step(*value, operand, operate);
            }
        }
        for value in &mut own {
            *value = renewed(*value);
        }
    }
    *values = black_box(own);
}

/// Starts again where a number has become too large or too small.
#[inline(always)]
fn moderate<T: Real>(value: T) -> T {
    match value.is_extreme() {
        true => T::START,
        false => value,
    }
}

/// Measures this operation in so many chains.
pub fn measure<const CHAINS: usize>(
    sampler: &mut Sampler,
    operation: &str,
) -> Result<Measured, Failure> {
    const LARGE: u64 = 0x1234_5678_9abc_def1;
    const SMALL: u32 = 0x1234_5679;
    let large = [LARGE; CHAINS];
    let small = [SMALL; CHAINS];
    match operation {
        "integer-bit" => whole(sampler, large, 3, |a, b| a ^ b),
        "integer-add" => whole(sampler, large, 3, |a, b| a.wrapping_add(b)),
        "integer-multiply" => whole(sampler, large, 3, |a, b| a.wrapping_mul(b)),
        "integer-divide" => whole(sampler, large, 3, |a, b| (a | 1 << 60) / (b | 1)),
        "integer-modulo" => whole(sampler, large, LARGE / 3, |a, b| (a | 1 << 60) % (b | 1)),
        "integer32-bit" => whole(sampler, small, 3, |a, b| a ^ b),
        "integer32-add" => whole(sampler, small, 3, |a, b| a.wrapping_add(b)),
        "integer32-multiply" => whole(sampler, small, 3, |a, b| a.wrapping_mul(b)),
        "integer32-divide" => whole(sampler, small, 3, |a, b| (a | 1 << 30) / (b | 1)),
        "integer32-modulo" => whole(sampler, small, SMALL / 3, |a, b| (a | 1 << 30) % (b | 1)),
        "function-call" => whole(sampler, large, 3, returned),
        "float-add" => real::<f32, CHAINS>(sampler, 1.000_001, |a, b| a + b),
        "float-multiply" => real::<f32, CHAINS>(sampler, 1.000_001, |a, b| a * b),
        "float-divide" => real::<f32, CHAINS>(sampler, 1.000_001, |a, b| a / b),
        "double-add" => real::<f64, CHAINS>(sampler, 1.000_000_1, |a, b| a + b),
        "double-multiply" => real::<f64, CHAINS>(sampler, 1.000_000_1, |a, b| a * b),
        _ => real::<f64, CHAINS>(sampler, 1.000_000_1, |a, b| a / b),
    }
}

/// A function that does nothing, and is called.
#[inline(never)]
fn returned(value: u64, _operand: u64) -> u64 {
    value.hidden()
}

fn whole<T: Number, const CHAINS: usize>(
    sampler: &mut Sampler,
    start: [T; CHAINS],
    operand: T,
    operate: impl Fn(T, T) -> T + Copy,
) -> Result<Measured, Failure> {
    timed(sampler, start, operand, operate, |value| value)
}

fn real<T: Real, const CHAINS: usize>(
    sampler: &mut Sampler,
    operand: T,
    operate: impl Fn(T, T) -> T + Copy,
) -> Result<Measured, Failure> {
    timed(sampler, [T::START; CHAINS], operand, operate, moderate)
}

fn timed<T: Number, const CHAINS: usize>(
    sampler: &mut Sampler,
    start: [T; CHAINS],
    operand: T,
    operate: impl Fn(T, T) -> T + Copy,
    renewed: impl Fn(T) -> T + Copy,
) -> Result<Measured, Failure> {
    let mut values = black_box(start);
    let operand = black_box(operand);
    let measured = sampler.time(|n| {
        // By value: a call through a reference need not be inlined, and would be a part of each operation.
        chains(&mut values, operand, n, operate, renewed);
        Ok(())
    })?;
    Ok(measured.times(UNROLLED * CHAINS as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chain_performs_each_operation() {
        let mut values = [1u64, 2, 3];
        chains(&mut values, 5, 10, |a, b| a + b, |value| value);
        assert_eq!(values, [3201, 3202, 3203]);
        let mut values = [1.5f32, 2.5];
        chains(&mut values, 0.25, 1, |a, b| a + b, moderate);
        assert_eq!(values, [17.5, 18.5]);
        let mut values = [f64::START];
        chains(&mut values, 1e40, 1, |a, b| a * b, moderate);
        assert_eq!(values, [f64::START]);
    }

    /// How the crate is compiled decides whether something else is between two operations. It was a call, which takes five times
    /// as long as the addition.
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    #[test]
    fn an_addition_takes_as_long_as_in_machine_code() {
        const ADDITIONS: u32 = 160_000;
        let (mut ours, mut in_assembly) = (f64::MAX, f64::MAX);
        for _ in 0..20 {
            let mut sampler = crate::sampler::tests::sampler();
            let measured = measure::<1>(&mut sampler, "integer-add").expect("a measurement");
            ours = ours.min(measured.operation_ns());
            let begun = std::time::Instant::now();
            let mut value = black_box(1u64);
            for _ in 0..ADDITIONS / 16 {
                // SAFETY: there are only registers.
                unsafe {
                    std::arch::asm!(
                        ".rept 16",
                        "add {value}, {operand}",
                        ".endr",
                        value = inout(reg) value,
                        operand = in(reg) 3u64,
                        options(pure, nomem, nostack)
                    );
                }
            }
            black_box(value);
            in_assembly = in_assembly.min(begun.elapsed().as_nanos() as f64);
        }
        let in_assembly = in_assembly / f64::from(ADDITIONS);
        assert!(ours < 2.0 * in_assembly, "{ours} and {in_assembly} ns");
    }
}
