// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installing the handler of a signal.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "signal.install",
    group: "calls",
    operation: "sigaction",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &[
        "hbench-OS lat_sig install",
        "lmbench lat_sig install",
        "libMicro signal",
    ],
    verified_by: "the call does not fail",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    sampler.time(|n| (0..n).try_for_each(|_| sys::install_handler().available("sigaction")))
}
