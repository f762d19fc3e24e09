// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests by io_uring.

use std::os::fd::AsRawFd;

use io_uring::{opcode, types, IoUring};

use crate::benchmark::{verify, Available, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};
use crate::scratch;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "io-uring",
    group: "waiting",
    operation: "one request, submitted and completed by one call",
    variants: &["nop", "read-4K"],
    by_name: &[],
    depends_on: &["call.null", "memory.copy-library"],
    answers_to: &[],
    verified_by: "each completion has the right result",
    measure,
};

const FILE: usize = 1 << 20;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let mut ring = IoUring::new(8).available("io_uring_setup")?;
    let file = scratch::file(sampler.directory(), FILE, 1)?;
    let mut buffer = vec![0u8; 4096];
    let (request, wanted) = match variant {
        "nop" => (opcode::Nop::new().build(), 0),
        _ => {
            let (descriptor, bytes) = (types::Fd(file.as_raw_fd()), buffer.len() as u32);
            let read = opcode::Read::new(descriptor, buffer.as_mut_ptr(), bytes);
            (read.build(), 4096)
        }
    };
    let measured = sampler.time(|n| {
        for _ in 0..n {
            // SAFETY: the file is open and the buffer lives until the request is completed, which is waited for.
            let pushed = unsafe { ring.submission().push(&request) };
            verify(pushed.is_ok(), || "the queue is full".to_string())?;
            ring.submit_and_wait(1).available("io_uring_enter")?;
            let result = ring.completion().next().map(|done| done.result());
            verify(result == Some(wanted), || format!("a result of {result:?}"))?;
        }
        Ok(())
    })?;
    verify(variant == "nop" || buffer[4095] == 1, || {
        "other bytes".to_string()
    })?;
    Ok(match variant {
        "nop" => measured,
        _ => measured.bytes(4096),
    })
}
