// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading from a file whose pages the kernel has dropped.

use std::os::unix::fs::FileExt;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.read-cold",
    group: "files",
    operation: "the first read of 4 KiB",
    variants: &[],
    by_name: &[],
    depends_on: &["disk", "file.reread"],
    answers_to: &["lmbench disk (seek)"],
    verified_by: "the page is in memory only after the read, and the content is right",
    measure,
};

const FILE: usize = 1 << 20;

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let file = scratch::file(sampler.directory(), FILE, 1)?;
    file.sync_all().available("fsync")?;
    let mut buffer = [0u8; 4096];
    let mut at = 0;
    let measured = sampler.time_each(|watch| {
        sys::drop_pages(&file).available("posix_fadvise")?;
        // Far apart, so that what the kernel reads ahead is of no use.
        at = (at + 7 * 64 * 1024) % FILE;
        if sys::is_resident(&file, at as u64) {
            let reason = "this file system keeps a file's pages when it is asked to drop them";
            return Err(Failure::Unavailable(reason.to_string()));
        }
        let read = watch.time(1, || file.read_at(&mut buffer, at as u64));
        let read = read.available("read a file")?;
        verify(read == 4096 && buffer[0] == 1, || format!("{read} bytes"))
    })?;
    Ok(measured.bytes(4096))
}
