// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request that waits for the result of a job, and whether it still does.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::inbox::{Inbox, Ticket};
use super::work::Result;

/// Loops look at deadlines at this interval.
const LEAST: Duration = Duration::from_millis(250);

/// Kept as long as the result of a job is wanted: a job that has not begun when it is dropped is left out.
#[derive(Default)]
pub struct Want(Arc<()>);

pub struct Caller {
    pub ticket: Ticket,
    pub answer_to: Arc<Inbox>,
    wanted: Weak<()>,
    since: Instant,
    /// It waits for so long.
    patience: Duration,
}

impl Caller {
    pub fn new(ticket: Ticket, answer_to: Arc<Inbox>, want: &Want, patience: Duration) -> Caller {
        Caller {
            ticket,
            answer_to,
            wanted: Arc::downgrade(&want.0),
            since: Instant::now(),
            patience: patience.max(LEAST),
        }
    }

    /// It will be there when a job that begins now ends, which takes as long as jobs do (`typical`). Without a margin, a disk
    /// that is asked for more than it can do would bring each file just after its client has given up. A job that has
    /// waited for less than three quarters of the patience is begun in any case.
    pub fn still_waits(&self, typical: Duration) -> bool {
        let needed = (2 * typical).min(self.patience / 4);
        self.is_there() && self.since.elapsed() + needed <= self.patience
    }

    pub fn is_there(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    pub fn answer(self, result: Result) {
        self.answer_to.put(self.ticket, result);
    }
}
