// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions that several requests ask at once: one job answers them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::inbox::{Inbox, Ticket};
use super::key::Key;

/// How often a loop tries to look. A helper that has the lock needs it for less than a microsecond.
const TRIES: usize = 100;

/// Who waits for the result of another's job.
pub type Waiting = Vec<(Ticket, Arc<Inbox>)>;

#[derive(Default)]
pub struct Flights {
    by_key: Mutex<Table>,
}

#[derive(Default)]
pub struct Table {
    by_key: HashMap<Key, Waiting>,
    /// In all keys.
    waiting: usize,
}

impl Flights {
    /// For a loop, which does not wait: `None` if a helper is at it all the time. Then the job is done alone.
    pub fn try_look(&self) -> Option<MutexGuard<'_, Table>> {
        for _ in 0..TRIES {
            match self.by_key.try_lock() {
                Ok(table) => return Some(table),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// For a helper: the job with this key is done. Returns who waits for its result, too.
    pub fn end(&self, key: &Key) -> Waiting {
        let mut table = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = table.by_key.remove(key).unwrap_or_default();
        table.waiting -= waiting.len();
        waiting
    }
}

impl Table {
    pub fn has(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// False: more than `most` would wait.
    pub fn join(&mut self, key: &Key, ticket: Ticket, inbox: Arc<Inbox>, most: usize) -> bool {
        let fits = self.waiting < most;
        if let (true, Some(waiting)) = (fits, self.by_key.get_mut(key)) {
            waiting.push((ticket, inbox));
            self.waiting += 1;
        }
        fits
    }

    /// A job with this key has begun.
    pub fn begin(&mut self, key: Key) {
        self.by_key.entry(key).or_default();
    }
}
