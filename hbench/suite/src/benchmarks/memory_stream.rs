// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops of STREAM and STREAM2, on arrays that together do not fit into the caches.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.stream",
    group: "memory",
    operation:
        "one pass over arrays of double precision; the rate counts what is read and what is written",
    variants: &[],
    by_name: &["copy", "scale", "add", "triad", "fill", "daxpy", "sum"],
    depends_on: &["memory.read", "memory.write"],
    answers_to: &["lmbench stream (version 1 and 2)"],
    verified_by: "the last number, or the sum, is right",
    measure,
};

const SCALAR: f64 = 3.0;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let part = sampler.size("memory")? / 3 / 64 * 64;
    let memory = Mapping::anonymous(3 * part).available("allocate memory")?;
    let (a, b, c) = (
        memory.chunk(0, part),
        memory.chunk(part, part),
        memory.chunk(2 * part, part),
    );
    a.write(1.0f64.to_bits());
    b.write(2.0f64.to_bits());
    c.write(0.0f64.to_bits());
    let last = part / 8 - 1;
    let is = |number: f64, wanted: f64| verify(number == wanted, || format!("{number}"));
    // Arrays that are read, and that are written.
    let (arrays, measured) = match variant {
        "copy" => {
            let copy = sampler.time(|n| {
                (0..n).for_each(|_| c.copy_from(&a));
                is(c.number(last), 1.0)
            });
            (2, copy)
        }
        "scale" => {
            let scale = sampler.time(|n| {
                (0..n).for_each(|_| c.transform(&b, |b| SCALAR * b));
                is(c.number(last), 6.0)
            });
            (2, scale)
        }
        "add" => {
            let add = sampler.time(|n| {
                (0..n).for_each(|_| c.combine(&a, &b, |a, b| a + b));
                is(c.number(last), 3.0)
            });
            (3, add)
        }
        "triad" => {
            let triad = sampler.time(|n| {
                (0..n).for_each(|_| c.combine(&a, &b, |a, b| a + SCALAR * b));
                is(c.number(last), 7.0)
            });
            (3, triad)
        }
        "fill" => {
            let fill = sampler.time(|n| {
                (0..n).for_each(|_| c.write(SCALAR.to_bits()));
                is(c.number(last), SCALAR)
            });
            (1, fill)
        }
        "daxpy" => {
            let daxpy = sampler.time(|n| {
                let before = a.number(last);
                (0..n).for_each(|_| a.combine(&a, &b, |a, b| a + SCALAR * b));
                is(a.number(last), before + 6.0 * n as f64)
            });
            (3, daxpy)
        }
        _ => {
            let sum = sampler.time(|n| {
                let sums: f64 = (0..n).map(|_| a.sum_numbers()).sum();
                is(sums, (n * (part / 8) as u64) as f64)
            });
            (1, sum)
        }
    };
    Ok(measured?.bytes(arrays * part))
}
