// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk transfer through a TCP connection of the loopback interface.

use crate::benchmark::{Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::stream;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "tcp.bandwidth",
    group: "bulk transfer",
    operation: "sending a block to another process through TCP",
    variants: &["1K", "4K", "64K", "1M", "64K-two-cpus"],
    by_name: &[],
    depends_on: &["memory.copy-library", "context-switch", "call.null"],
    answers_to: &["hbench-OS bw_tcp", "lmbench bw_tcp"],
    verified_by: "the data have the marks that the sender gave them",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (from, to) = stream::tcp_pair()?;
    stream::receive(sampler, variant, from, to)
}
