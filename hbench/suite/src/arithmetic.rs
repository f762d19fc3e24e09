// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that the compiler knows nothing about, and keeps in their registers.

use std::hint::black_box;

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

/// Operations of a loop without a test between them.
pub const UNROLLED: u64 = 16;

/// Without it, the compiler would compute the sum of many additions at once.
#[inline(always)]
fn step<T: Number>(value: T, operand: T, operate: impl Fn(T, T) -> T) -> T {
    match cfg!(target_arch = "x86_64") {
        true => operate(value, operand).hidden(),
        // There hiding takes the way through memory, which is not to be in the chain.
        false => operate(value, operand.hidden()),
    }
}

/// Performs `n` times [`UNROLLED`] operations on each of the values, whose chains do not depend on each other.
#[inline(always)]
pub fn chains<T: Number, const CHAINS: usize>(
    values: &mut [T; CHAINS],
    operand: T,
    n: u64,
    operate: impl Fn(T, T) -> T,
) {
    let mut own = *values;
    for _ in 0..n {
        for _ in 0..UNROLLED {
            for value in &mut own {
                *value = step(*value, operand, &operate);
            }
        }
    }
    *values = black_box(own);
}

/// As [`chains`], of numbers that start again where they become too large or too small.
#[inline(always)]
pub fn real_chains<T: Real, const CHAINS: usize>(
    values: &mut [T; CHAINS],
    operand: T,
    n: u64,
    operate: impl Fn(T, T) -> T,
) {
    let mut own = *values;
    for _ in 0..n {
        for _ in 0..UNROLLED {
            for value in &mut own {
                *value = step(*value, operand, &operate);
            }
        }
        for value in &mut own {
            if value.is_extreme() {
                *value = T::START;
            }
        }
    }
    *values = black_box(own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chain_performs_each_operation() {
        let mut values = [1u64, 2, 3];
        chains(&mut values, 5, 10, |value, operand| value + operand);
        assert_eq!(values, [801, 802, 803]);
        let mut values = [1.5f32, 2.5];
        real_chains(&mut values, 0.25, 1, |value, operand| value + operand);
        assert_eq!(values, [5.5, 6.5]);
        let mut values = [f64::START];
        real_chains(&mut values, 1e40, 1, |value, operand| value * operand);
        assert_eq!(values, [f64::START]);
    }
}
