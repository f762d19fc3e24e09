// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads that do not depend on each other: how many the CPU has under way at the same time.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::chain::{link, Disorder};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chains, Link, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.parallel",
    group: "memory",
    operation: "one load, of several chains that are followed at the same time",
    variants: &[],
    by_name: &[
        "256K-2-chains",
        "256K-4-chains",
        "256K-8-chains",
        "memory-2-chains",
        "memory-4-chains",
        "memory-8-chains",
    ],
    depends_on: &["memory.latency"],
    answers_to: &["lmbench par_mem"],
    verified_by: "the chains are parts of one that returns to its start",
    measure,
};

const LINE: usize = 128;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    match variant {
        _ if variant.contains("2-chains") => follow::<2>(sampler, variant),
        _ if variant.contains("4-chains") => follow::<4>(sampler, variant),
        _ => follow::<8>(sampler, variant),
    }
}

fn follow<const CHAINS: usize>(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let size = variant.split('-').next().unwrap_or(variant);
    let bytes = sampler.size(size)?;
    let chains = Chains::new(Mapping::filled(bytes).available("allocate memory")?);
    let order = Disorder::new().order(bytes / LINE);
    let words = order.iter().map(|line| *line as usize * LINE / 8);
    let first = link(&chains, words)?;
    // Equally far from each other in one cycle, so that no chain uses lines that another one has just brought.
    let part = order.len() / CHAINS;
    let starts: [Link; CHAINS] = std::array::from_fn(|chain| first.follow((chain * part) as u64));
    let ends = Link::follow_together(starts, part as u64);
    let is_next = ends.iter().zip(starts.iter().cycle().skip(1));
    let is_next = is_next.filter(|(end, start)| end == start).count();
    verify(is_next == CHAINS, || {
        format!("{is_next} of {CHAINS} chains meet")
    })?;
    let mut at = starts;
    let measured = sampler.time(|n| {
        at = Link::follow_together(at, n);
        Ok(())
    })?;
    Ok(measured.times(CHAINS as u64))
}
