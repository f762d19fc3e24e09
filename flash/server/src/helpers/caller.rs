// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for the result of a job, and whether that is still so.

use std::sync::{Arc, Weak};

use super::inbox::{Inbox, Ticket};
use super::work::Result;

/// Kept as long as the result of a job is wanted: a job that has not begun when it is dropped is left out.
#[derive(Default)]
pub struct Want(Arc<()>);

pub struct Caller {
    pub ticket: Ticket,
    pub answer_to: Arc<Inbox>,
    wanted: Weak<()>,
}

impl Caller {
    pub fn new(ticket: Ticket, answer_to: Arc<Inbox>, want: &Want) -> Caller {
        Caller {
            ticket,
            answer_to,
            wanted: Arc::downgrade(&want.0),
        }
    }

    pub fn still_waits(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    pub fn answer(self, result: Result) {
        self.answer_to.put(self.ticket, result);
    }
}
