// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating many files in a directory, and removing them.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.many",
    group: "files",
    operation: "creating one of 200 files of a directory, or removing it",
    variants: &[],
    by_name: &[
        "create-0K",
        "create-1K",
        "create-4K",
        "create-10K",
        "remove-0K",
        "remove-1K",
        "remove-4K",
        "remove-10K",
    ],
    depends_on: &["file.create"],
    answers_to: &["lmbench lat_fs"],
    verified_by:
        "each name was free, and was there to be removed; the directory is empty in the end",
    measure,
};

const FILES: u64 = 200;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (is_create, size) = match variant.split_once('-') {
        Some((what, size)) => (what == "create", sampler.size(size)?),
        None => return Err(Failure::Wrong(format!("no size: {variant}"))),
    };
    let content = vec![1u8; size];
    let directory = sampler.directory().join("many");
    fs::create_dir(&directory).available("create a directory")?;
    let paths: Vec<PathBuf> = (0..FILES)
        .map(|at| directory.join(at.to_string()))
        .collect();
    let create = || {
        paths.iter().try_for_each(|path| {
            let mut file = File::create_new(path).available("create a file")?;
            match content.is_empty() {
                true => Ok(()),
                false => file.write_all(&content).available("write to a file"),
            }
        })
    };
    let remove = || {
        let mut paths = paths.iter();
        paths.try_for_each(|path| fs::remove_file(path).available("remove a file"))
    };
    sampler.time_each(|watch| {
        match is_create {
            true => {
                watch.time(FILES, create)?;
                remove()?;
            }
            false => {
                create()?;
                watch.time(FILES, remove)?;
            }
        }
        let left = fs::read_dir(&directory)
            .available("read a directory")?
            .count();
        verify(left == 0, || format!("{left} files are left"))
    })
}
