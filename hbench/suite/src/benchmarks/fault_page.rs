// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first access to a page that the kernel has to provide.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::chain::Disorder;
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::{Mapping, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "fault.page",
    group: "faults",
    operation: "one page fault",
    variants: &[
        "anonymous",
        "anonymous-read",
        "file",
        "copy",
        "copy-after-fork",
    ],
    by_name: &["file-in-disorder"],
    depends_on: &["memory.clear", "memory.copy-library"],
    answers_to: &["lmbench lat_pagefault (file-in-disorder)"],
    verified_by: "the content of each page is right",
    measure,
};

const PAGE: usize = 4096;
const PAGES: usize = 256;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = PAGE * PAGES;
    let anonymous = || -> Result<Mapping, Failure> {
        let memory = Mapping::anonymous(bytes).available("allocate memory")?;
        memory.in_small_pages();
        Ok(memory)
    };
    match variant {
        "anonymous" => {
            let memory = anonymous()?;
            sampler.time_each(|watch| {
                memory.give_back();
                watch.time(PAGES as u64, || memory.all().touch(PAGE, 5));
                sum_is(&memory, 5)
            })
        }
        // Reading maps the page of zeros.
        "anonymous-read" => {
            let memory = anonymous()?;
            sampler.time_each(|watch| {
                memory.give_back();
                let sum = watch.time(PAGES as u64, || memory.all().sample(PAGE));
                verify(sum == 0, || format!("a sum of {sum}"))
            })
        }
        "file" | "copy" => {
            let file = scratch::file(sampler.directory(), bytes, 1)?;
            sampler.time_each(|watch| {
                let map = match variant {
                    "file" => Mapping::of_file(&file, bytes),
                    _ => Mapping::copy_of_file(&file, bytes),
                };
                let memory = map.available("map a file")?;
                match variant {
                    "file" => {
                        let sum = watch.time(PAGES as u64, || memory.all().sample(PAGE));
                        verify(sum == scratch::WORD.wrapping_mul(PAGES as u64), || {
                            format!("a sum of {sum}")
                        })
                    }
                    _ => {
                        watch.time(PAGES as u64, || memory.all().touch(PAGE, 7));
                        sum_is(&memory, 7)
                    }
                }
            })
        }
        "file-in-disorder" => {
            let file = scratch::file(sampler.directory(), bytes, 1)?;
            let order = Disorder::new().order(PAGES);
            sampler.time_each(|watch| {
                let memory = Mapping::of_file(&file, bytes).available("map a file")?;
                let word = |page: &u32| memory.chunk(*page as usize * PAGE, 8).sample(PAGE);
                let sum = |order: &[u32]| order.iter().map(word).fold(0, u64::wrapping_add);
                let sum = watch.time(PAGES as u64, || sum(&order));
                verify(sum == scratch::WORD.wrapping_mul(PAGES as u64), || {
                    format!("a sum of {sum}")
                })
            })
        }
        _ => after_fork(sampler, &anonymous()?),
    }
}

fn sum_is(memory: &Mapping, value: u64) -> Result<(), Failure> {
    let sum = memory.all().sample(PAGE);
    verify(sum == PAGES as u64 * value, || format!("a sum of {sum}"))
}

/// A child shares all pages, so the first write to each has to copy it.
fn after_fork(sampler: &mut Sampler, memory: &Mapping) -> Result<Measured, Failure> {
    memory.all().write(3);
    sampler.shares_cpu();
    let cpu = sampler.second_cpu("one-cpu")?;
    sampler.time_each(|watch| {
        let waits = Peer::start(cpu, || loop {
            std::thread::park();
        })?;
        watch.time(PAGES as u64, || memory.all().touch(PAGE, 3));
        drop(waits);
        sum_is(memory, 3)
    })
}
