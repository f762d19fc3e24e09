// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte to another process through TCP, and one back.

use crate::benchmark::{Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::stream;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "tcp.latency",
    group: "messages",
    operation: "a round trip of one byte",
    variants: &["one-cpu", "two-cpus"],
    by_name: &[],
    depends_on: &["context-switch", "call.null"],
    answers_to: &["hbench-OS lat_tcp", "lmbench lat_tcp"],
    verified_by: "each answer is the number of its question",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (own, other) = stream::tcp_pair()?;
    stream::round_trips(sampler, variant, (&own, &own), (&other, &other))
}
