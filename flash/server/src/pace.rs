// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of a turn a loop spends on TLS handshakes, and what became of them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustls::HandshakeKind;

use crate::counts::{add, subtract, Counts};

/// Time for handshakes in one turn of a loop. The handshake during which it ends is not interrupted.
const HANDSHAKES_NS: u64 = 500_000;

/// The handshakes of one loop.
#[derive(Debug, Default)]
pub struct Pace {
    /// That have begun and not ended.
    pub open: usize,
    /// The share of `Counts::handshakes_open` that is this loop's.
    counted_open: usize,
    /// In this turn.
    pub spent_ns: u64,
    longest_ns: u64,
    pub done: u64,
    resumed: u64,
    pub failed: u64,
}

impl Pace {
    /// A handshake has ended without a connection.
    pub fn fails(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.failed += 1;
    }

    /// There is no time for handshakes left in this turn.
    pub fn is_spent(&self) -> bool {
        self.spent_ns >= HANDSHAKES_NS
    }

    #[cfg(test)]
    pub fn use_up(&mut self) {
        self.spent_ns = HANDSHAKES_NS;
    }

    /// The next turn begins.
    pub fn turn(&mut self, counts: &Counts) {
        if self.open != self.counted_open {
            add(&counts.handshakes_open, self.open as u64);
            subtract(&counts.handshakes_open, self.counted_open as u64);
            self.counted_open = self.open;
        }
        if self.spent_ns == 0 && self.failed == 0 {
            return;
        }
        add(&counts.handshake_ns, self.spent_ns);
        add(&counts.handshakes, self.done);
        add(&counts.resumed, self.resumed);
        add(&counts.failed_handshakes, self.failed);
        let longest = &counts.longest_handshake_ns;
        longest.fetch_max(self.longest_ns, Ordering::Relaxed);
        *self = Pace {
            open: self.open,
            counted_open: self.counted_open,
            ..Pace::default()
        };
    }

    /// A part of a handshake has been computed.
    pub fn spend(&mut self, began: Instant) {
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// A handshake has ended with a connection.
    pub fn succeeds(&mut self, kind: Option<HandshakeKind>) {
        self.open = self.open.saturating_sub(1);
        self.done += 1;
        self.resumed += u64::from(kind == Some(HandshakeKind::Resumed));
    }
}
