// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending to a Unix socket, and receiving from it, each by itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "unix.one-way",
    group: "messages",
    operation: "sending bytes that are received later, or receiving bytes that were sent before",
    variants: &[],
    by_name: &["send-1", "receive-1", "send-96000", "receive-96000"],
    depends_on: &["unix.send-receive"],
    answers_to: &["LEBench send, recv (small, big)"],
    verified_by: "the bytes arrive whole",
    measure,
};

/// Small messages that fit into the socket's buffer together.
const SMALL_AT_ONCE: usize = 50;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let (what, bytes) = variant.split_once('-').unwrap_or((variant, "1"));
    let bytes = bytes.parse().unwrap_or(1);
    let count = if bytes == 1 { SMALL_AT_ONCE } else { 1 };
    let (mut own, mut other) = UnixStream::pair().available("socketpair")?;
    for end in [&own, &other] {
        // What does not fit is an error, and no wait.
        end.set_nonblocking(true).available("fcntl")?;
    }
    let (sent, mut received) = (vec![7u8; bytes], vec![0u8; bytes]);
    let mut send = || -> Result<(), Failure> {
        for _ in 0..count {
            let taken = own.write(&sent).available("send")?;
            verify(taken == bytes, || format!("{taken} bytes were taken"))?;
        }
        Ok(())
    };
    let mut receive = || -> Result<(), Failure> {
        for _ in 0..count {
            received[bytes - 1] = 0;
            let got = other.read(&mut received).available("receive")?;
            verify(got == bytes && received[bytes - 1] == 7, || {
                format!("{got} bytes arrived")
            })?;
        }
        Ok(())
    };
    let measured = sampler.time_each(|watch| match what {
        "send" => {
            watch.time(count as u64, &mut send)?;
            receive()
        }
        _ => {
            send()?;
            watch.time(count as u64, &mut receive)
        }
    })?;
    Ok(measured.bytes(bytes))
}
