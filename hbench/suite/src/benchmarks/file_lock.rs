// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locking a part of a file, and unlocking it.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.lock",
    group: "files",
    operation: "fcntl to lock a byte, and to unlock it",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["libMicro fcntl_tmp, lockf"],
    verified_by: "the calls do not fail",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let file = scratch::file(sampler.directory(), 4096, 1)?;
    let change = |is_locked| sys::lock_byte(&file, 0, is_locked).available("fcntl");
    sampler.time(|n| {
        (0..n).try_for_each(|_| {
            change(true)?;
            change(false)
        })
    })
}
