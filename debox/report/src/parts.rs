// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sums over rows and the report share: the parts of a budget, and the place of a row.

use serde::Serialize;

/// The parts add up to the wall time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Budget {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// Null: interrupts were not measured, and are included in `cpu_ns`.
    pub irq_ns: Option<u64>,
    /// Part of the blocked time.
    pub idle_ns: u64,
}

/// The name of the rows for time between calls.
pub const USER: &str = "(user)";

/// The parts of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    pub wall: u64,
    pub cpu: u64,
    pub blocked: u64,
    pub runqueue: u64,
    pub preempted: u64,
    pub irq: u64,
}

impl Parts {
    /// Sums saturate instead of wrapping, because a damaged file may contain any number.
    pub fn add(&mut self, other: &Parts) {
        self.wall = self.wall.saturating_add(other.wall);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.runqueue = self.runqueue.saturating_add(other.runqueue);
        self.preempted = self.preempted.saturating_add(other.preempted);
        self.irq = self.irq.saturating_add(other.irq);
    }

    /// The time off the CPU.
    pub fn without_cpu(mut self) -> Parts {
        self.wall = self.wall.saturating_sub(self.cpu);
        self.cpu = 0;
        self
    }
}

pub fn budget(parts: &Parts, idle: u64, has_irq: bool) -> Budget {
    Budget {
        wall_ns: parts.wall,
        cpu_ns: parts.cpu,
        blocked_ns: parts.blocked,
        runqueue_ns: parts.runqueue,
        preempted_ns: parts.preempted,
        irq_ns: has_irq.then_some(parts.irq),
        idle_ns: idle.min(parts.blocked),
    }
}

/// Where a row is in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The rank: wall time without idle waits.
    pub score: u64,
    pub group: u32,
    pub row: u32,
}
