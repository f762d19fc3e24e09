// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of the table of event loops.

use serde::Serialize;

/// A thread that waits for the events of several clients.
#[derive(Debug, Clone, Serialize)]
pub struct EventLoop {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Its waits for events.
    pub waits: u64,
    /// How long it waited for other things.
    pub blocked_ns: u64,
    /// The longest time from the end of a wait for events to the beginning of the next, and when it began. Turns
    /// across two groups of rows are not known.
    pub longest_turn_ns: u64,
    pub longest_turn_at_ns: u64,
    /// Turns of 10 ms or more.
    pub long_turns: u64,
    /// What it waited for, the longest first.
    pub causes: Vec<LoopCause>,
}

#[derive(Debug, Clone, Serialize)]
pub struct LoopCause {
    pub call: String,
    pub label: String,
    pub class: String,
    /// A wait for the events of another loop, which runs inside this one.
    pub is_inner_loop: bool,
    pub count: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    /// Of the longest.
    pub caller: Option<String>,
    /// The program's, outermost first.
    pub stack: Vec<String>,
    pub resource: Option<String>,
}

impl LoopCause {
    /// What was waited for, in words.
    pub fn what(&self) -> &str {
        match self.is_inner_loop {
            true => "another loop inside it",
            false => &self.label,
        }
    }

    /// Whether both are one row.
    pub(crate) fn is_like(&self, other: &LoopCause) -> bool {
        (&self.call, &self.label, self.is_inner_loop)
            == (&other.call, &other.label, other.is_inner_loop)
    }

    /// Takes in waits of the same row.
    pub(crate) fn add(&mut self, other: LoopCause) {
        self.count = self.count.saturating_add(other.count);
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        if other.longest_ns > self.longest_ns {
            self.longest_ns = other.longest_ns;
            self.caller = other.caller;
            self.stack = other.stack;
            self.resource = other.resource;
        }
    }
}
