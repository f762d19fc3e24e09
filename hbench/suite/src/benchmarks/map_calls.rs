// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mmap` of a file, the first access to it, and `munmap`, each by itself.

use std::fs::File;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "map.calls",
    group: "faults",
    operation: "mmap of a cached file for reading; or the first access to it; or munmap after a write to every page of a private copy",
    variants: &[],
    by_name: &[
        "map-4K",
        "map-40K",
        "map-4000K",
        "map-40000K",
        "access-4K",
        "access-40K",
        "access-4000K",
        "access-40000K",
        "unmap-4K",
        "unmap-40K",
        "unmap-4000K",
        "unmap-40000K",
    ],
    depends_on: &["map.anonymous", "fault.page"],
    answers_to: &["LEBench mmap, munmap, page fault (small, mid, big, huge)"],
    verified_by: "the content of the page that is accessed is right",
    measure,
};

const PAGE: usize = 4096;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (what, size) = variant.split_once('-').unwrap_or((variant, "4K"));
    let bytes = sampler.size(size)?;
    let file = scratch::file(sampler.directory(), bytes, 1)?;
    let is_right = |word: u64, wanted: u64| verify(word == wanted, || format!("{word:#x}"));
    let first = |memory: &Mapping| memory.chunk(0, 8).read();
    sampler.time_each(|watch| match what {
        "map" => {
            let memory = watch.time(1, || view(&file, bytes))?;
            is_right(first(&memory), scratch::WORD)
        }
        "access" => {
            let memory = view(&file, bytes)?;
            let word = watch.time(1, || first(&memory));
            is_right(word, scratch::WORD)
        }
        _ => {
            let memory = map(&file, bytes)?;
            memory.all().touch(PAGE, 7);
            is_right(first(&memory), 7)?;
            watch.time(1, || drop(memory));
            Ok(())
        }
    })
}

fn view(file: &File, bytes: usize) -> Result<Mapping, Failure> {
    Mapping::view_of_file(file, bytes).available("map a file")
}

fn map(file: &File, bytes: usize) -> Result<Mapping, Failure> {
    Mapping::copy_of_file(file, bytes).available("map a file")
}
