// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the requests that wait for a process of an application gets one.

use super::EventLoop;
use crate::counts::{add, subtract};

impl EventLoop {
    /// Gives the processes that are free to the requests that wait for one.
    pub(super) fn serve_waiting(&mut self) {
        while let Some(((key, id), pool, process)) = self.context.queues.next_served() {
            let found = self.connections.get_mut(key).filter(|(its, _)| *its == id);
            let left = match found {
                Some((_, connection)) => connection.gets(key, process, &mut self.context),
                None => Some(process),
            };
            if let Some(process) = left {
                pool.put(process);
            }
            self.drive(key, id);
        }
        self.context.queues.pass_on();
        let (before, waiting) = self.context.queues.count();
        if before != waiting {
            let counts = self.context.counts();
            add(&counts.waiting, waiting as u64);
            subtract(&counts.waiting, before as u64);
        }
    }
}
