// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads that are closer to each other than a cache line, or further apart: the time rises with the distance up to the
//! length of a line.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::chain::{link, Disorder};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chains, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.line",
    group: "memory",
    operation: "one load from a KiB of memory, whose loads are so many bytes apart and in no order",
    variants: &[],
    by_name: &["8", "16", "32", "64", "128", "256"],
    depends_on: &["memory.latency"],
    answers_to: &["lmbench line (the distance from which the time is that of twice as much)"],
    verified_by: "the chain of loads returns to its start",
    measure,
};

const BLOCK: usize = 1024;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (distance, bytes) = (sampler.size(variant)?, sampler.size("memory")?);
    let chains = Chains::new(Mapping::filled(bytes).available("allocate memory")?);
    let mut disorder = Disorder::new();
    let blocks = disorder.order(bytes / BLOCK);
    let mut within = disorder.order(BLOCK / distance);
    let words = blocks.iter().flat_map(|block| {
        disorder.shuffle(&mut within);
        let begin = *block as usize * BLOCK;
        let places = within
            .iter()
            .map(move |place| begin + *place as usize * distance);
        places.map(|byte| byte / 8).collect::<Vec<usize>>()
    });
    let mut at = link(&chains, words)?;
    sampler.time(|n| {
        at = at.follow(n);
        Ok(())
    })
}
