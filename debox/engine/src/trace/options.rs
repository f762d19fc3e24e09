// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of the call tree to trace.

use super::method::Method;

/// Functions that one thread can have open at the same time (`TRACE_DEPTH_MAX`).
pub const DEPTH_MAX: u32 = 32;

/// What to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    /// Groups, names and wildcards; `!` before an item excludes it. Empty: the default groups.
    pub functions: Vec<String>,
    /// Functions nested deeper than this are counted but not followed.
    pub depth: u32,
    /// `None`: the best method that the kernel offers.
    pub method: Option<Method>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            functions: Vec::new(),
            depth: DEPTH_MAX,
            method: None,
        }
    }
}
