// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spans of time.

/// An interval of `CLOCK_MONOTONIC`, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub begin: i64,
    pub end: i64,
}

impl Span {
    pub fn common(self, other: Span) -> Option<Span> {
        let (begin, end) = (self.begin.max(other.begin), self.end.min(other.end));
        (begin < end).then_some(Span { begin, end })
    }

    pub fn length(self) -> u64 {
        self.end.saturating_sub(self.begin).max(0) as u64
    }
}
