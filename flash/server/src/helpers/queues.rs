// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where jobs wait for a helper: those that bring bytes apart from all others, and each kind has every second turn while
//! there are both. So a client that asks for many parts of a large file keeps no name waiting, nor one with many names a file
//! that is being sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

pub struct Queues<J> {
    names: ArrayQueue<J>,
    bytes: ArrayQueue<J>,
    taken: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Name,
    Bytes,
}

impl<J> Queues<J> {
    /// `each`: so many jobs of each kind may wait.
    pub fn new(each: usize) -> Queues<J> {
        Queues {
            names: ArrayQueue::new(each),
            bytes: ArrayQueue::new(each),
            taken: AtomicUsize::new(0),
        }
    }

    /// False: as many wait as may.
    pub fn push(&self, kind: Kind, job: J) -> bool {
        self.of(kind).push(job).is_ok()
    }

    pub fn pop(&self) -> Option<J> {
        let order = match self.taken.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => [Kind::Name, Kind::Bytes],
            _ => [Kind::Bytes, Kind::Name],
        };
        order.into_iter().find_map(|kind| self.of(kind).pop())
    }

    pub fn len(&self) -> usize {
        self.names.len() + self.bytes.len()
    }

    /// Of each kind.
    pub fn capacity(&self) -> usize {
        self.names.capacity()
    }

    fn of(&self, kind: Kind) -> &ArrayQueue<J> {
        match kind {
            Kind::Name => &self.names,
            Kind::Bytes => &self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_every_second_turn() {
        let queues = Queues::new(4);
        for job in 0..4 {
            assert!(queues.push(Kind::Bytes, job));
        }
        assert!(!queues.push(Kind::Bytes, 4));
        assert!(queues.push(Kind::Name, 10) && queues.push(Kind::Name, 11));
        assert_eq!(queues.len(), 6);
        let order: Vec<i32> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(order, [10, 0, 11, 1, 2, 3]);
    }
}
