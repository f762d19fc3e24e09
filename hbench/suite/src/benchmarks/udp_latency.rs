// SPDX-License-Identifier: MIT OR Apache-2.0
//! A datagram to another process through UDP, and one back.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Peer;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "udp.latency",
    group: "messages",
    operation: "a round trip of one byte",
    variants: &["one-cpu", "two-cpus"],
    by_name: &[],
    depends_on: &["context-switch", "call.null"],
    answers_to: &["hbench-OS lat_udp", "lmbench lat_udp"],
    verified_by: "each answer is the number of its question",
    measure,
};

/// Loopback may drop a datagram when memory is short.
const PATIENCE: Duration = Duration::from_secs(5);

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bind = || -> Result<UdpSocket, Failure> {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).available("bind a UDP socket to loopback")
    };
    let (own, other) = (bind()?, bind()?);
    let own_address = own.local_addr().available("getsockname")?;
    let other_address = other.local_addr().available("getsockname")?;
    own.connect(other_address).available("connect")?;
    other.connect(own_address).available("connect")?;
    own.set_read_timeout(Some(PATIENCE))
        .available("setsockopt")?;
    sampler.shares_cpu();
    let _answers = Peer::start(sampler.second_cpu(variant)?, move || loop {
        let mut byte = [0u8];
        other.recv(&mut byte).available("receive")?;
        other.send(&byte).available("send")?;
    })?;
    sampler.time(|n| {
        for number in 0..n {
            let mut byte = [number as u8];
            own.send(&byte).available("send")?;
            own.recv(&mut byte).available("receive")?;
            verify(byte[0] == number as u8, || format!("{byte:?} to {number}"))?;
        }
        Ok(())
    })
}
