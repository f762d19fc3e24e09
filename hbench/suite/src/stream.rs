// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the benchmarks of pipes and sockets have in common.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::benchmark::{verify, Available, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::Peer;

/// Both ends of a connection over the loopback interface, without delays (Nagle).
pub fn tcp_pair() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).available("listen at loopback")?;
    let address = listener.local_addr().available("getsockname")?;
    let own = TcpStream::connect(address).available("connect")?;
    let (other, _) = listener.accept().available("accept")?;
    for end in [&own, &other] {
        end.set_nodelay(true).available("setsockopt")?;
    }
    Ok((own, other))
}

/// Bandwidth. A second process writes blocks of the variant's size to `to`; this one reads them.
pub fn receive(
    sampler: &mut Sampler,
    variant: &str,
    mut from: impl Read,
    mut to: impl Write,
) -> Result<Measured, Failure> {
    const MARK: u8 = 0x5a;
    let size = variant.split('-').next().unwrap_or(variant);
    let bytes = sampler.size(size)?;
    let cpu = sampler.second_cpu(variant)?;
    sampler.shares_cpu();
    let _sender = Peer::start(cpu, move || {
        let block = vec![MARK; bytes];
        loop {
            to.write_all(&block).available("write")?;
        }
    })?;
    let mut block = vec![0u8; bytes];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            block[bytes - 1] = 0;
            from.read_exact(&mut block).available("read")?;
            verify(block[bytes - 1] == MARK, || "other bytes".to_string())?;
        }
        Ok(())
    })?;
    Ok(measured.bytes(bytes))
}

/// Latency. This process writes a byte to its second end and reads the answer from its first; a second process
/// answers by its own two ends.
pub fn round_trips(
    sampler: &mut Sampler,
    variant: &str,
    own: (impl Read, impl Write),
    other: (impl Read, impl Write),
) -> Result<Measured, Failure> {
    let ((mut answered, mut ask), (mut question, mut answer)) = (own, other);
    let cpu = sampler.second_cpu(variant)?;
    sampler.shares_cpu();
    let _answers = Peer::start(cpu, move || loop {
        let mut byte = [0u8];
        question.read_exact(&mut byte).available("read")?;
        answer.write_all(&byte).available("write")?;
    })?;
    sampler.time(|n| {
        for number in 0..n {
            let mut byte = [number as u8];
            ask.write_all(&byte).available("write")?;
            answered.read_exact(&mut byte).available("read")?;
            verify(byte[0] == number as u8, || format!("{byte:?} to {number}"))?;
        }
        Ok(())
    })
}
