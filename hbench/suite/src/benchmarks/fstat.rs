// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at an open file.

use std::fs::File;
use std::os::fd::AsFd;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::file;

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
    let opened = File::open(path).available("open a file")?;
    sampler.time(|n| {
        for _ in 0..n {
            let found = file::fstat(opened.as_fd()).available("look at a file")?;
            verify(found == inode, || format!("inode {found}"))?;
        }
        Ok(())
    })
}
