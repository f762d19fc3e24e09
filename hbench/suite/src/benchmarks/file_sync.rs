// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing a page and waiting until it is stored.

use std::os::unix::fs::FileExt;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.sync",
    group: "files",
    operation: "writing 4 KiB over a file and fsync, or fdatasync",
    variants: &["fsync", "fdatasync"],
    by_name: &[],
    depends_on: &["disk", "file.rewrite"],
    answers_to: &["libMicro fsync (write to disk)"],
    verified_by: "all bytes are taken, and the call does not fail",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let file = scratch::file(sampler.directory(), 1 << 20, 1)?;
    file.sync_all().available("fsync")?;
    scratch::on_disk(sampler.directory())?;
    let page = [5u8; 4096];
    let mut at = 0;
    sampler.time(|n| {
        for _ in 0..n {
            let written = file.write_at(&page, at).available("write to a file")?;
            verify(written == page.len(), || format!("{written} bytes"))?;
            match variant {
                "fsync" => file.sync_all().available("fsync")?,
                _ => file.sync_data().available("fdatasync")?,
            }
            at = (at + 4096) % (1 << 20);
        }
        Ok(())
    })
}
