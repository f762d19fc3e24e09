// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setting up a TCP connection of the loopback interface, and closing it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "tcp.connect",
    group: "messages",
    operation: "connect, accept, and closing both ends",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["hbench-OS lat_connect", "lmbench lat_connect"],
    verified_by: "the accepted connection is the one that was asked for",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).available("listen at loopback")?;
    let address = listener.local_addr().available("getsockname")?;
    sampler.time(|n| {
        for _ in 0..n {
            let own = TcpStream::connect(address).available("connect")?;
            let (other, from) = listener.accept().available("accept")?;
            let asked = own.local_addr().available("getsockname")?;
            verify(from == asked, || format!("a connection from {from}"))?;
            // Otherwise each connection would keep its port for a minute, until none is left.
            sys::reset_on_close(own.as_fd()).available("setsockopt")?;
            drop((own, other));
        }
        Ok(())
    })
}
