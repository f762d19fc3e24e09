// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file from a disk from its beginning to its end, or to the disk.

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "file.transfer",
    group: "files",
    operation: "reading 16 MiB that the kernel has dropped, by 64 KiB, or writing them and fsync",
    variants: &[],
    by_name: &["read-cold", "write-sync"],
    depends_on: &["disk", "file.read-cold", "file.sync"],
    answers_to: &["lmbench lmdd, disk (bandwidth)"],
    verified_by: "the last page is in memory only after the read, and the content is right; all bytes are taken",
    measure,
};

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 256;
const BYTES: usize = BLOCK * BLOCKS;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let mut file = scratch::file(sampler.directory(), BYTES, 1)?;
    file.sync_all().available("fsync")?;
    scratch::on_disk(sampler.directory())?;
    let mut block = vec![1u8; BLOCK];
    let measured = sampler.time_each(|watch| {
        file.rewind().available("seek")?;
        match variant {
            "read-cold" => {
                sys::drop_pages(&file).available("posix_fadvise")?;
                if sys::is_resident(&file, (BYTES - 4096) as u64) {
                    let reason =
                        "this file system keeps a file's pages when it is asked to drop them";
                    return Err(Failure::Unavailable(reason.to_string()));
                }
                block.fill(0);
                watch.time(1, || read(&mut file, &mut block))?;
                let right = block.iter().filter(|byte| **byte == 1).count();
                verify(right == BLOCK, || {
                    format!("{right} bytes of the last {BLOCK}")
                })
            }
            _ => watch.time(1, || write(&mut file, &block)),
        }
    })?;
    Ok(measured.bytes(BYTES))
}

fn read(file: &mut File, block: &mut [u8]) -> Result<(), Failure> {
    (0..BLOCKS).try_for_each(|_| file.read_exact(block).available("read a file"))
}

fn write(file: &mut File, block: &[u8]) -> Result<(), Failure> {
    (0..BLOCKS).try_for_each(|_| file.write_all(block).available("write to a file"))?;
    file.sync_all().available("fsync")
}
