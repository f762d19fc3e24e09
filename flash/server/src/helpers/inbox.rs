// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the results of helpers wait for a loop.

use std::os::fd::OwnedFd;

use crossbeam_queue::SegQueue;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::{read, write};

use super::work::Result;

/// Thousands may have waited for one name.
const AT_ONCE: usize = 256;

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

    /// Takes the wake-up, and then what is there, or as much of it as a loop may do before it looks at its events again.
    pub fn take(&self, mut each: impl FnMut(Ticket, Result)) {
        let _ = read(&self.wakes, &mut [0u8; 8]);
        for _ in 0..AT_ONCE {
            let Some((ticket, result)) = self.results.pop() else {
                return;
            };
            each(ticket, result);
        }
        if !self.results.is_empty() {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{poll, PollFd, PollFlags, Timespec};

    #[test]
    fn what_is_left_wakes_again() {
        let inbox = Inbox::new().expect("a descriptor");
        let (all, connection) = (AT_ONCE as u64 + 1, 7);
        for number in 0..all {
            inbox.put(Ticket { connection, number }, Result::Warmed);
        }
        let is_awake = || {
            let mut ready = [PollFd::new(&inbox.wakes, PollFlags::IN)];
            poll(&mut ready, Some(&Timespec::default())) == Ok(1)
        };
        let mut taken = Vec::new();
        for expected in [AT_ONCE, all as usize] {
            assert!(is_awake());
            inbox.take(|ticket, _| taken.push(ticket.number));
            assert_eq!(taken.len(), expected);
        }
        assert!(!is_awake());
        assert_eq!(taken, (0..all).collect::<Vec<_>>());
    }
}
