// SPDX-License-Identifier: MIT OR Apache-2.0
//! A byte to another process through a named pipe, and one back.

use std::fs::File;
use std::path::Path;

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::{stream, sys};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "fifo.latency",
    group: "messages",
    operation: "a round trip of one byte",
    variants: &[],
    by_name: &["one-cpu", "two-cpus"],
    depends_on: &["pipe.latency"],
    answers_to: &["lmbench lat_fifo"],
    verified_by: "each answer is the number of its question",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (question, ask) = fifo(&sampler.directory().join("question"))?;
    let (answered, answer) = fifo(&sampler.directory().join("answer"))?;
    stream::round_trips(sampler, variant, (answered, ask), (question, answer))
}

/// Both ends of a new named pipe.
fn fifo(path: &Path) -> Result<(File, File), Failure> {
    sys::make_fifo(path).available("mkfifo")?;
    // On Linux, opening both ends at once waits for no one. With it, neither do the others.
    let both = File::options().read(true).write(true).open(path);
    let both = both.available("open a named pipe")?;
    let from = File::open(path).available("open a named pipe to read")?;
    let to = File::options().write(true).open(path);
    drop(both);
    Ok((from, to.available("open a named pipe to write")?))
}
