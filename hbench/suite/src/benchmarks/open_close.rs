// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a cached file, and closing it.

use std::os::fd::{AsFd, OwnedFd};

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::file;

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
    let name = file::name(&path).available("name a file")?;
    let open = || file::open(&name).available("open a file");
    let check = |opened: &OwnedFd| {
        let found = file::fstat(opened.as_fd()).available("look at a file")?;
        verify(found == inode, || format!("inode {found}"))
    };
    check(&open()?)?;
    if variant == "cold" {
        return sampler.time_each(|watch| {
            scratch::drop_caches(is_allowed)?;
            let opened = watch.time(1, open)?;
            check(&opened)
        });
    }
    sampler.time(|n| (0..n).try_for_each(|_| open().map(drop)))
}
