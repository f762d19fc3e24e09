// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time slept at each stack, by thread name and over time.

use rustc_hash::FxHashMap;

use crate::names::{Name, TOO_MANY};
use crate::timeline::Timeline;

/// Rows that each reading thread keeps, at most. With its slices a row takes 0.6 kB or less.
const ROWS_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    /// The program's stack; without a stack, the caller.
    pub stack: Name,
    pub call: Name,
    pub label: Name,
    /// The kernel's stack; without a stack, the site.
    pub kernel: Name,
    /// The thread's name.
    pub comm: Name,
    /// The process and the thread, if the wait may be one for work.
    pub may_rest: Option<(u32, u32)>,
}

/// Time over the recording, coarser than its timeline.
pub type Slices = Timeline<1, 64>;

#[derive(Debug, Clone)]
pub struct StackSums {
    pub blocked: u64,
    pub sleeps: u64,
    pub slices: Slices,
}

#[derive(Debug)]
pub struct Stacks {
    pub sums: FxHashMap<StackKey, StackSums>,
    /// Sleeps whose stacks did not fit into the table.
    pub folded: u64,
    pub origin: i64,
}

impl Stacks {
    pub fn new(origin: i64) -> Stacks {
        Stacks {
            sums: FxHashMap::default(),
            folded: 0,
            origin,
        }
    }

    /// Adds one sleep.
    #[inline]
    pub fn add(&mut self, key: StackKey, begin: i64, blocked: u64) {
        let sums = self.row(key, 1);
        sums.blocked = sums.blocked.saturating_add(blocked);
        sums.sleeps += 1;
        sums.slices.add(begin, blocked, 0, blocked);
    }

    /// The row of a stack, or the row of its call and label if the table is full.
    fn row(&mut self, mut key: StackKey, sleeps: u64) -> &mut StackSums {
        if self.sums.len() >= ROWS_MAX && !self.sums.contains_key(&key) {
            self.folded += sleeps;
            key = StackKey {
                stack: TOO_MANY,
                kernel: TOO_MANY,
                comm: TOO_MANY,
                may_rest: None,
                ..key
            };
        }
        let origin = self.origin;
        self.sums.entry(key).or_insert_with(|| StackSums {
            blocked: 0,
            sleeps: 0,
            slices: Timeline::new(origin),
        })
    }

    /// Adds the rows of another reading thread.
    pub fn merge(&mut self, other: Stacks) {
        let mut rows: Vec<_> = other.sums.into_iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        for (key, add) in rows {
            let sums = self.row(key, add.sleeps);
            sums.blocked = sums.blocked.saturating_add(add.blocked);
            sums.sleeps += add.sleeps;
            sums.slices.merge(&add.slices);
        }
        self.folded += other.folded;
    }
}
