// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking a process that waits for a word in memory, and being woken by it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{self, Mapping, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "futex.wake",
    group: "waiting",
    operation: "a round trip of two wake-ups",
    variants: &["one-cpu", "two-cpus"],
    by_name: &[],
    depends_on: &["context-switch", "call.null"],
    answers_to: &["libMicro (cascade_mutex, cascade_cond)"],
    verified_by: "each answer is the number of its question",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let cpu = sampler.second_cpu(variant)?;
    let memory = Mapping::shared(4096).available("allocate memory")?;
    let words = memory.all();
    let (question, answer) = words.two_atomics();
    sampler.shares_cpu();
    let _answers = Peer::start(cpu, || {
        let mut number = 0;
        loop {
            number = wait_for_other(question, number);
            answer.store(number, Ordering::Release);
            sys::futex_wake(answer);
        }
    })?;
    let mut number = 0u32;
    sampler.time(|n| {
        for _ in 0..n {
            let before = number;
            number = number.wrapping_add(1);
            question.store(number, Ordering::Release);
            sys::futex_wake(question);
            let got = wait_for_other(answer, before);
            verify(got == number, || format!("{got} to {number}"))?;
        }
        Ok(())
    })
}

fn wait_for_other(word: &AtomicU32, value: u32) -> u32 {
    loop {
        let now = word.load(Ordering::Acquire);
        if now != value {
            return now;
        }
        sys::futex_wait(word, value);
    }
}
