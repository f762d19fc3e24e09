// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk transfer through a Unix socket.

use std::os::unix::net::UnixStream;

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::stream;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "unix.bandwidth",
    group: "bulk transfer",
    operation: "sending a block to another process through a Unix socket",
    variants: &["4K", "64K", "1M", "64K-two-cpus"],
    by_name: &[],
    depends_on: &["memory.copy-library", "context-switch", "call.null"],
    answers_to: &["lmbench bw_unix"],
    verified_by: "the data have the marks that the sender gave them",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (from, to) = UnixStream::pair().available("socketpair")?;
    stream::receive(sampler, variant, from, to)
}
