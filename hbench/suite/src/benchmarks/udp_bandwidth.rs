// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk transfer through UDP and the loopback interface.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Peer;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "udp.bandwidth",
    group: "bulk transfer",
    operation: "a datagram from another process, which sends 64 KiB of them at each request",
    variants: &[],
    by_name: &["1K", "8K", "32K"],
    depends_on: &["memory.copy-library", "context-switch", "udp.send-receive"],
    answers_to: &["lmbench bw_udp"],
    verified_by: "the datagrams arrive whole and in their order",
    measure,
};

/// As much as the socket's buffer has room for, with what the kernel needs for each datagram: UDP drops what does not fit.
const REQUESTED: usize = 64 << 10;
/// After a loss, no more datagrams come.
const PATIENCE: Duration = Duration::from_secs(5);

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).available("bind a UDP socket");
    let (own, other) = (bind()?, bind()?);
    let (own_address, other_address) = (
        own.local_addr().available("getsockname")?,
        other.local_addr().available("getsockname")?,
    );
    own.connect(other_address).available("connect")?;
    other.connect(own_address).available("connect")?;
    own.set_read_timeout(Some(PATIENCE))
        .available("setsockopt")?;
    sampler.shares_cpu();
    let at_once = (REQUESTED / bytes) as u8;
    let _sender = Peer::start(sampler.second_cpu(variant)?, move || {
        let mut datagram = vec![0u8; bytes];
        loop {
            other.recv(&mut [0]).available("receive")?;
            for number in 0..at_once {
                datagram[bytes - 1] = number;
                other.send(&datagram).available("send")?;
            }
        }
    })?;
    let mut datagram = vec![0u8; bytes];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            own.send(&[1]).available("send")?;
            for number in 0..at_once {
                let got = own.recv(&mut datagram).available("receive a datagram")?;
                verify(got == bytes && datagram[bytes - 1] == number, || {
                    format!("{got} bytes, number {}", datagram[bytes - 1])
                })?;
            }
        }
        Ok(())
    })?;
    Ok(measured.times(u64::from(at_once)).bytes(bytes))
}
