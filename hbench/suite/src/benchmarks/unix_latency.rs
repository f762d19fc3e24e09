// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte to another process through a Unix socket, and one back.

use std::os::unix::net::UnixStream;

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::stream;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "unix.latency",
    group: "messages",
    operation: "a round trip of one byte",
    variants: &["one-cpu", "two-cpus"],
    by_name: &[],
    depends_on: &["context-switch", "call.null"],
    answers_to: &["lmbench lat_unix"],
    verified_by: "each answer is the number of its question",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (own, other) = UnixStream::pair().available("socketpair")?;
    stream::round_trips(sampler, variant, (&own, &own), (&other, &other))
}
