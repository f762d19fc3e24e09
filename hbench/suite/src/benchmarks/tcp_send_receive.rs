// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes to oneself through a TCP connection: the protocol's work, without another process.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::{stream, sys};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "tcp.send-receive",
    group: "messages",
    operation: "sending a block through TCP and receiving it within one process, to and fro",
    variants: &["1", "64K"],
    by_name: &[],
    depends_on: &["call.null", "memory.copy-library"],
    answers_to: &[],
    verified_by: "the block arrives whole",
    measure,
};

/// A block has to fit into them: nothing reads while it is sent.
const BUFFERS: usize = 256 << 10;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let (own, other) = stream::tcp_pair()?;
    for end in [&own, &other] {
        sys::set_buffers(end.as_fd(), BUFFERS).available("setsockopt")?;
    }
    let (mut sent, mut received) = (vec![7u8; bytes], vec![0u8; bytes]);
    // To and fro, as in a conversation: each block has the acknowledgement of the one before it.
    let measured = sampler.time(|n| {
        for number in 0..n {
            for (from, to) in [(&own, &other), (&other, &own)] {
                let (mut from, mut to) = (from, to);
                sent[bytes - 1] = number as u8;
                from.write_all(&sent).available("write")?;
                to.read_exact(&mut received).available("read")?;
                verify(received[bytes - 1] == number as u8, || {
                    "other bytes".to_string()
                })?;
            }
        }
        Ok(())
    })?;
    Ok(measured.times(2).bytes(bytes))
}
