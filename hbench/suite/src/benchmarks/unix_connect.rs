// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setting up a connection of Unix sockets, and closing it.

use std::os::unix::net::{UnixListener, UnixStream};

use crate::benchmark::{Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "unix.connect",
    group: "messages",
    operation: "connect, accept, and closing both ends",
    variants: &[],
    by_name: &[],
    depends_on: &["call.null"],
    answers_to: &["lmbench lat_unix_connect"],
    verified_by: "the calls do not fail",
    measure,
};

fn measure(sampler: &mut Sampler, _variant: &str) -> Result<Measured, Failure> {
    let path = sampler.directory().join("listener");
    let listener = UnixListener::bind(&path).available("listen at a Unix socket")?;
    sampler.time(|n| {
        for _ in 0..n {
            let own = UnixStream::connect(&path).available("connect")?;
            let (other, _) = listener.accept().available("accept")?;
            drop((own, other));
        }
        Ok(())
    })
}
