// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte to another process through a pipe, and one back.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::stream;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "pipe.latency",
    group: "messages",
    operation: "a round trip of one byte",
    variants: &["one-cpu", "two-cpus"],
    by_name: &[],
    depends_on: &["context-switch", "call.null"],
    answers_to: &[
        "hbench-OS lat_pipe",
        "lmbench lat_pipe",
        "UnixBench Pipe-based Context Switching",
        "perf bench sched pipe",
        "LEBench context switch",
    ],
    verified_by: "each answer is the number of its question",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (question, ask) = std::io::pipe().available("pipe")?;
    let (answered, answer) = std::io::pipe().available("pipe")?;
    stream::round_trips(sampler, variant, (answered, ask), (question, answer))
}
