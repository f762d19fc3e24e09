// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the results of helpers wait for a loop.

use std::os::fd::OwnedFd;

use crossbeam_queue::SegQueue;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::{read, write};

use super::work::Result;

/// Who asked, and for which of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub connection: usize,
    pub number: u64,
}

/// Its eventfd becomes readable when there are some.
pub struct Inbox {
    results: SegQueue<(Ticket, Result)>,
    pub wakes: OwnedFd,
}

impl Inbox {
    /// # Errors
    ///
    /// The kernel has no descriptor left.
    pub fn new() -> std::io::Result<Inbox> {
        Ok(Inbox {
            results: SegQueue::new(),
            wakes: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub fn put(&self, ticket: Ticket, result: Result) {
        self.results.push((ticket, result));
        self.wake();
    }

    pub fn wake(&self) {
        // It cannot fail but for a counter that is full, and then the loop is awake.
        let _ = write(&self.wakes, &1u64.to_ne_bytes());
    }

    /// Takes the wake-up, and then all that is there.
    pub fn take(&self, mut each: impl FnMut(Ticket, Result)) {
        let _ = read(&self.wakes, &mut [0u8; 8]);
        while let Some((ticket, result)) = self.results.pop() {
            each(ticket, result);
        }
    }
}
