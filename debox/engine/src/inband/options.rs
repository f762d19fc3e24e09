// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to load.

use crate::options::{Detail, Tap};

/// What [`super::enable`] loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Threads of this process and its children that can be monitored at the same time. Each takes
    /// 17 KB of kernel memory, used or not.
    pub max_threads: u32,
    /// How much is recorded; `callsites` has no place in a record and only costs.
    pub detail: Detail,
    /// How calls are seen. `None`: under `debox run --tap user`, the user tap of that session, which the process joins;
    /// otherwise the kernel tap of a session of its own. See [the two taps](super#the-two-taps).
    pub tap: Option<Tap>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_threads: 1024,
            tap: None,
            detail: Detail {
                sleeps: true,
                ..Detail::default()
            },
        }
    }
}
