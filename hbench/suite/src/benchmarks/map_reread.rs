// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a cached file through a mapping.

use std::fs::File;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::Mapping;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "map.reread",
    group: "bulk transfer",
    operation: "reading every word of a cached 4 MiB file",
    variants: &["mapped", "map-to-unmap"],
    by_name: &["open-to-close"],
    depends_on: &["memory.read", "fault.page"],
    answers_to: &[
        "hbench-OS bw_mmap_rd",
        "lmbench bw_mmap_rd mmap_only (mapped), open2close (open-to-close)",
    ],
    verified_by: "the sum of all words is right",
    measure,
};

const FILE: usize = 4 << 20;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let path = scratch::named_file(sampler.directory(), FILE, 1)?;
    let open = || {
        let file = File::options().read(true).write(true).open(&path);
        file.available("open a file")
    };
    let file = open()?;
    let wanted = scratch::WORD.wrapping_mul((FILE / 8) as u64);
    let check = |sum: u64| verify(sum == wanted, || format!("a sum of {sum}"));
    let map = || map_whole(&file);
    let measured = match variant {
        "mapped" => {
            let memory = map()?;
            sampler.time(|n| (0..n).try_for_each(|_| check(memory.all().read())))?
        }
        "map-to-unmap" => sampler.time(|n| (0..n).try_for_each(|_| check(map()?.all().read())))?,
        _ => sampler.time(|n| (0..n).try_for_each(|_| check(map_whole(&open()?)?.all().read())))?,
    };
    Ok(measured.bytes(FILE))
}

fn map_whole(file: &File) -> Result<Mapping, Failure> {
    Mapping::of_file(file, FILE).available("map a file")
}
