// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that wait for each other by locks of a file.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::{self, Mapping, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.lock-handover",
    group: "files",
    operation: "a round trip: each of two processes waits for a byte that the other has locked, and unlocks its own",
    variants: &[],
    by_name: &["one-cpu", "two-cpus"],
    depends_on: &["file.lock", "context-switch"],
    answers_to: &["lmbench lat_fcntl"],
    verified_by: "the other process counted each round trip",
    measure,
};

/// Each process has locked one of three bytes. It locks the next, which the other process has to unlock before, and then
/// unlocks its own. So neither can be two steps ahead.
const BYTES: i64 = 3;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let cpu = sampler.second_cpu(variant)?;
    let file = scratch::file(sampler.directory(), 4096, 1)?;
    let memory = Mapping::shared(4096).available("allocate memory")?;
    let words = memory.all();
    let (counted, _) = words.two_atomics();
    sampler.shares_cpu();
    let step = |from: i64| -> Result<i64, Failure> {
        let next = (from + 1) % BYTES;
        sys::lock_byte(&file, next, true).available("fcntl")?;
        sys::lock_byte(&file, from, false).available("fcntl")?;
        Ok(next)
    };
    sys::lock_byte(&file, 0, true).available("fcntl")?;
    let (mut ready, mut says_ready) = std::io::pipe().available("pipe")?;
    let _other = Peer::start(cpu, || {
        sys::lock_byte(&file, 1, true).available("fcntl")?;
        says_ready.write_all(&[1]).available("write")?;
        let mut at = 1;
        loop {
            at = step(at)?;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    ready.read_exact(&mut [0]).available("read")?;
    let (mut at, mut made) = (0, 0u32);
    sampler.time(|n| {
        for _ in 0..n {
            at = step(at)?;
        }
        made = made.wrapping_add(n as u32);
        // The other process has unlocked the byte of the last step, may still have to count that, and may be a step ahead.
        let ahead = counted.load(Ordering::Relaxed).wrapping_sub(made) as i32;
        verify((-1..=1).contains(&ahead), || {
            format!("the other process counted {ahead} round trips more than {made}")
        })
    })
}
