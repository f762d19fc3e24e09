// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write to memory that may not be written, which a handler repairs.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Faults, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "fault.protection",
    group: "faults",
    operation: "mprotect, the fault, its signal, and mprotect in the handler",
    variants: &[],
    by_name: &[],
    depends_on: &["signal.deliver", "call.null"],
    answers_to: &["lmbench lat_sig prot"],
    verified_by: "the handler ran for each write",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let page = Mapping::filled(4096).available("allocate memory")?;
    let faults = Faults::of(&page).available("sigaction")?;
    sampler.time(|n| {
        let mut before = faults.one().available("mprotect")?;
        for _ in 1..n {
            let now = faults.one().available("mprotect")?;
            verify(now == before + 1, || format!("{} faults", now - before))?;
            before = now;
        }
        Ok(())
    })
}
