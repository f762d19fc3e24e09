// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions that several requests ask at once: one job answers them all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::caller::Caller;
use super::key::Key;

/// How often a loop tries to look. A helper that has the lock needs it for less than a microsecond.
const TRIES: usize = 100;

/// Who waits for the result of another's job.
pub type Waiting = Vec<Caller>;

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
        self.look().remove(key)
    }

    /// For a helper: the job with this key ends, if none of those who joined it will be there when it is done. Returns them.
    pub fn end_unwanted(&self, key: &Key, typical: Duration) -> Option<Waiting> {
        let mut table = self.look();
        let mut joined = table.by_key.get(key).into_iter().flatten();
        let is_wanted = joined.any(|caller| caller.still_waits(typical));
        (!is_wanted).then(|| table.remove(key))
    }

    fn look(&self) -> MutexGuard<'_, Table> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    pub fn has(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// False: more than `most` would wait.
    pub fn join(&mut self, key: &Key, caller: Caller, most: usize) -> bool {
        let fits = self.waiting < most;
        if let (true, Some(waiting)) = (fits, self.by_key.get_mut(key)) {
            waiting.push(caller);
            self.waiting += 1;
        }
        fits
    }

    /// A job with this key has begun.
    pub fn begin(&mut self, key: Key) {
        self.by_key.entry(key).or_default();
    }

    fn remove(&mut self, key: &Key) -> Waiting {
        let waiting = self.by_key.remove(key).unwrap_or_default();
        self.waiting -= waiting.len();
        waiting
    }
}
