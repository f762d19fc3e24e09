// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explanations of sleeps, and those so far.

use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::Frame;
use crate::labels::Class;

/// One sleep, explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The wait's human-readable name, such as `page read`.
    pub label: String,
    pub class: Class,
    /// The kernel function that decided to wait, and the offset in it; an address if the kernel's symbols
    /// are hidden.
    pub function: String,
    pub offset: u64,
    /// Source file and line of the site; empty and 0 where the kernel has no debug information.
    pub file: String,
    pub line: u32,
    /// The whole kernel stack, innermost first.
    pub frames: Vec<Frame>,
}

impl Explanation {
    /// `function+0xOFF`.
    pub fn site(&self) -> String {
        if self.function.starts_with("0x") {
            return self.function.clone();
        }
        format!("{}+{:#x}", self.function, self.offset)
    }
}

/// Explanations so far, in that generation: equal sleeps have equal explanations.
pub(super) struct Cache(u64, Option<HashMap<Key, Arc<Explanation>>>);

/// Everything that an explanation depends on. Labels look at the arguments of one call only (`fcntl`).
pub(super) type Key = (u64, u32, u32, u64);

/// The cache is cleared when it has this many entries, as many as the session's table of stacks.
pub(super) const CACHE_MAX: usize = 16384;

impl Cache {
    pub const fn new() -> Cache {
        Cache(0, None)
    }

    pub fn clear(&mut self) {
        self.1 = None;
    }

    pub fn get(&self, generation: u64, key: &Key) -> Option<&Arc<Explanation>> {
        let known = self.1.as_ref().filter(|_| self.0 == generation);
        known.and_then(|known| known.get(key))
    }

    /// The same name means another stack with another broker.
    pub fn of_generation(&mut self, generation: u64) -> &mut HashMap<Key, Arc<Explanation>> {
        if self.0 != generation {
            (self.0, self.1) = (generation, None);
        }
        self.1.get_or_insert_with(HashMap::new)
    }
}
