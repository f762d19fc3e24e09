// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was brought last is kept open for a while, so that the kernel does not take names and inodes out of memory when
//! files need the room.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// A name below one of the roots.
pub type Name = (usize, Vec<u8>);

/// Descriptors of the last names, at most so many. Two generations: when the younger one is full or old enough, it
/// becomes the older one, and what was in that is closed.
pub struct Kept {
    most: usize,
    younger: HashMap<Name, OwnedFd>,
    older: HashMap<Name, OwnedFd>,
}

impl Kept {
    pub fn new(most: usize) -> Kept {
        Kept {
            most,
            younger: HashMap::new(),
            older: HashMap::new(),
        }
    }

    pub fn keep(&mut self, name: Name, pin: OwnedFd) {
        if self.most < 2 {
            return;
        }
        self.older.remove(&name);
        if self.younger.len() >= self.most / 2 {
            self.turn();
        }
        self.younger.insert(name, pin);
    }

    /// Call it at regular intervals: nothing is kept for longer than two of them without having been brought again.
    pub fn turn(&mut self) {
        self.older = std::mem::take(&mut self.younger);
    }

    pub fn clear(&mut self) {
        self.younger.clear();
        self.older.clear();
    }

    pub fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    fn pin() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).expect("descriptors")
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_no_longer() {
        let mut kept = Kept::new(10);
        for number in 0..100u8 {
            kept.keep((0, vec![number]), pin());
            assert!(kept.len() <= 10);
        }
        kept.keep((0, vec![99]), pin());
        assert!(kept.len() >= 5, "the last ones are there");
        kept.turn();
        assert!(kept.len() > 0);
        kept.turn();
        assert_eq!(kept.len(), 0);
        kept.keep((0, vec![1]), pin());
        kept.clear();
        assert_eq!(kept.len(), 0);
        let mut none = Kept::new(0);
        none.keep((0, vec![1]), pin());
        assert_eq!(none.len(), 0);
    }
}
