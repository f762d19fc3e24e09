// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel sends a cached file through TCP.

use std::io::Read;
use std::os::fd::AsFd;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;
use crate::stream;
use crate::sys::{self, Peer};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "tcp.sendfile",
    group: "bulk transfer",
    operation: "sending a part of a cached file to another process",
    variants: &["64K", "1M"],
    by_name: &[],
    depends_on: &["tcp.bandwidth", "memory.copy-library"],
    answers_to: &[],
    verified_by: "all bytes arrive",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let file = scratch::file(sampler.directory(), bytes, 1)?;
    let (mut from, to) = stream::tcp_pair()?;
    sampler.shares_cpu();
    let cpu = sampler.second_cpu(variant)?;
    let _sender = Peer::start(cpu, move || loop {
        let mut sent = 0;
        while sent < bytes {
            sent += sys::sendfile(to.as_fd(), &file, bytes - sent).available("sendfile")?;
        }
    })?;
    let mut buffer = vec![0u8; bytes];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            from.read_exact(&mut buffer).available("receive a file")?;
            verify(buffer[bytes - 1] == 1, || "other bytes".to_string())?;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}
