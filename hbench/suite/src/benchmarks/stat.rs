// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at a cached file by its name.

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys::file;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.stat",
    group: "files",
    operation: "stat",
    variants: &["hot", "cold", "new-name"],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["lmbench lat_syscall stat", "libMicro stat_tmp (stat)"],
    verified_by: "the file is the right one; a new name is not there",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (path, inode) = scratch::named(sampler.directory())?;
    let is_allowed = sampler.may_drop_caches();
    let name = file::name(&path).available("name a file")?;
    let look = || file::stat(&name).available("look at a file");
    let check = |found: u64| verify(found == inode, || format!("inode {found}"));
    match variant {
        "cold" => sampler.time_each(|watch| {
            scratch::drop_caches(is_allowed)?;
            check(watch.time(1, look)?)
        }),
        // The file system has to be asked, because the kernel remembers names that are not there.
        "new-name" => {
            let mut number = 0u64;
            sampler.time_each(|watch| {
                number += 1;
                let name = path.with_extension(number.to_string());
                let name = file::name(&name).available("name a file")?;
                let found = watch.time(1, || file::stat(&name));
                verify(found.is_err(), || {
                    "a name that nobody made is there".to_string()
                })
            })
        }
        _ => sampler.time(|n| (0..n).try_for_each(|_| check(look()?))),
    }
}
