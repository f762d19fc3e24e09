// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a cached file, and closing it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.open",
    group: "files",
    operation: "open and close",
    variants: &["hot", "cold"],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["lmbench lat_syscall open", "libMicro open_tmp, close_tmp"],
    verified_by: "the file is the right one",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (path, inode) = scratch::named(sampler.directory())?;
    let is_allowed = sampler.may_drop_caches();
    let open = || -> Result<File, Failure> { File::open(&path).available("open a file") };
    let check = |file: &File| {
        let found = file.metadata().available("look at a file")?.ino();
        verify(found == inode, || format!("inode {found}"))
    };
    check(&open()?)?;
    if variant == "cold" {
        return sampler.time_each(|watch| {
            scratch::drop_caches(is_allowed)?;
            let file = watch.time(1, open)?;
            check(&file)
        });
    }
    sampler.time(|n| (0..n).try_for_each(|_| open().map(drop)))
}
