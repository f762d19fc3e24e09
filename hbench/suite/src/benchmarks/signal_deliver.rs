// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending a signal to oneself, and handling it.

use std::sync::atomic::Ordering;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{self, SIGNALS};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "signal.deliver",
    group: "calls",
    operation: "kill, the handler, and the return from it",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["lmbench lat_sig catch", "hbench-OS lat_sig catch"],
    verified_by: "the handler ran as often",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    sys::install_handler().available("sigaction")?;
    let own = std::process::id();
    sampler.time(|n| {
        let before = SIGNALS.load(Ordering::Relaxed);
        (0..n).for_each(|_| sys::raise(own));
        let handled = SIGNALS.load(Ordering::Relaxed) - before;
        verify(handled == n, || {
            format!("{handled} of {n} signals were handled")
        })
    })
}
