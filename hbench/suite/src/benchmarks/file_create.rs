// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating a file and removing it.

use std::fs::{self, File};
use std::io::Write;

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.create",
    group: "files",
    operation: "creating a file, closing it, removing it",
    variants: &["0K", "4K"],
    by_name: &["1K", "10K"],
    depends_on: &["file.open"],
    answers_to: &["lmbench lat_fs create, delete (together)"],
    verified_by: "the name was free, and was there to be removed",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let content = vec![1u8; sampler.size(variant)?];
    let path = sampler.directory().join("created");
    sampler.time(|n| {
        for _ in 0..n {
            let mut file = File::create_new(&path).available("create a file")?;
            if !content.is_empty() {
                file.write_all(&content).available("write to a file")?;
            }
            drop(file);
            fs::remove_file(&path).available("remove a file")?;
        }
        Ok(())
    })
}
