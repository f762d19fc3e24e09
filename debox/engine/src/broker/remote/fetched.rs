// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session has fetched beside results.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::broker::protocol::FrameText;
use crate::deadlock::Wait;
use crate::symbols::{Frame, Symbols};

/// No results are fetched again in this time.
pub(super) const NEVER: Duration = Duration::from_secs(1 << 30);

/// What has been fetched beside results.
#[derive(Default)]
pub(super) struct Fetched {
    /// The places that these numbers stand for. The broker gives no addresses.
    pub symbols: Rc<Symbols>,
    numbers: RefCell<HashMap<FrameText, u64>>,
    /// Calls and sleeps that were lost in this session, and in those that ended with their broker.
    pub lost: (u64, u64),
    pub lost_before: (u64, u64),
    /// By thread: the name of its user stack, and when it was read.
    pub user_stacks: HashMap<u32, (u64, u64)>,
    /// By thread: what it waited for shortly before the end, if the holder is known.
    pub held: HashMap<u32, Wait>,
}

impl Fetched {
    /// The number that stands for a place.
    pub fn number(&self, place: FrameText) -> u64 {
        let mut numbers = self.numbers.borrow_mut();
        let next = numbers.len() as u64 + 1;
        if let Some(known) = numbers.get(&place) {
            return *known;
        }
        self.symbols.know(next, Frame::from(place.clone()));
        numbers.insert(place, next);
        next
    }
}
