// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at an open file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.fstat",
    group: "files",
    operation: "fstat",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["lmbench lat_syscall fstat"],
    verified_by: "the file is the right one",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let (path, inode) = scratch::named(sampler.directory())?;
    let file = File::open(path).available("open a file")?;
    sampler.time(|n| {
        for _ in 0..n {
            let found = file.metadata().available("look at a file")?.ino();
            verify(found == inode, || format!("inode {found}"))?;
        }
        Ok(())
    })
}
