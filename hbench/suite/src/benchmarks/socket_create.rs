// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating a socket that is never connected, and closing it.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "socket.create",
    group: "messages",
    operation: "socket and close",
    variants: &["tcp", "unix"],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["libMicro socket_i, socket_u"],
    verified_by: "each call gives a descriptor",
    measure,
};

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let make = match variant {
        "tcp" => sys::tcp_socket,
        _ => sys::unix_socket,
    };
    sampler.time(|n| (0..n).try_for_each(|_| make().map(drop).available("socket")))
}
