// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message to oneself: no other process is involved.

use std::os::unix::net::UnixDatagram;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "unix.send-receive",
    group: "messages",
    operation: "send and recv of a message within one process",
    variants: &["1", "64K"],
    by_name: &[],
    depends_on: &["call.null", "memory.copy-library"],
    answers_to: &[],
    verified_by: "the message arrives whole",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let (own, other) = UnixDatagram::pair().available("socketpair")?;
    let (sent, mut received) = (vec![7u8; bytes], vec![0u8; bytes]);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            own.send(&sent).available("send")?;
            let got = other.recv(&mut received).available("recv")?;
            verify(got == bytes && received[bytes - 1] == 7, || {
                format!("{got} bytes")
            })?;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}
