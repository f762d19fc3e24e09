// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that wait for each other by semaphores of System V.

use std::sync::atomic::Ordering;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Mapping, Peer, Semaphores};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "semaphore.latency",
    group: "waiting",
    operation:
        "a round trip: semop by one process and by another, each of which waits for the other's",
    variants: &[],
    by_name: &["one-cpu", "two-cpus"],
    depends_on: &["context-switch", "call.null"],
    answers_to: &["lmbench lat_sem (half of a round trip)"],
    verified_by: "the other process counted each round trip",
    measure,
};

/// Semaphores, by who waits for them.
const OWN: u16 = 0;
const OTHERS: u16 = 1;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let cpu = sampler.second_cpu(variant)?;
    let what =
        "make semaphores in an IPC namespace of its own, as those of others would be left behind";
    let semaphores = Semaphores::new().available(what)?;
    let memory = Mapping::shared(4096).available("allocate memory")?;
    let words = memory.all();
    let (counted, _) = words.two_atomics();
    sampler.shares_cpu();
    let _answers = Peer::start(cpu, || loop {
        // Before the turn is given back.
        counted.fetch_add(1, Ordering::Relaxed);
        semaphores.take_and_give(OTHERS, OWN).available("semop")?;
    })?;
    let take = || semaphores.take_and_give(OWN, OTHERS).available("semop");
    // This process takes before it gives, so each operation waits for the other process.
    semaphores.give(OTHERS).available("semop")?;
    let mut made = 0u32;
    sampler.time(|n| {
        (0..n).try_for_each(|_| take())?;
        made = made.wrapping_add(n as u32);
        // The other process has counted each turn that it gave, and may have had the next one, and counted the one that it
        // waits for.
        let ahead = counted.load(Ordering::Relaxed).wrapping_sub(made) as i32;
        verify((0..=2).contains(&ahead), || {
            format!("the other process counted {ahead} round trips more than {made}")
        })
    })
}
