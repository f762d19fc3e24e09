// SPDX-License-Identifier: MIT OR Apache-2.0
//! A datagram to oneself through UDP.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "udp.send-receive",
    group: "messages",
    operation: "sending a byte through UDP and receiving it within one process",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &[],
    verified_by: "each byte is the one that was sent",
    measure,
};

/// Loopback may drop a datagram when memory is short.
const PATIENCE: Duration = Duration::from_secs(5);

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).available("bind a UDP socket");
    let (own, other) = (bind()?, bind()?);
    let address = other.local_addr().available("getsockname")?;
    own.connect(address).available("connect")?;
    other
        .set_read_timeout(Some(PATIENCE))
        .available("setsockopt")?;
    sampler.time(|n| {
        for number in 0..n {
            let mut byte = [0u8];
            own.send(&[number as u8]).available("send")?;
            other.recv(&mut byte).available("receive")?;
            verify(byte[0] == number as u8, || format!("{byte:?} for {number}"))?;
        }
        Ok(())
    })
}
