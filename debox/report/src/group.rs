// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the tables by process, and by unit or container.

use serde::Serialize;

use crate::parts::Budget;

/// Processes, or all threads of a unit or container.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// Of a process; null for a unit or container.
    pub pid: Option<u32>,
    /// The number that the process has in its container; null: it has no other one, or it is not known.
    pub inner_pid: Option<u32>,
    /// The command line of a process, or the name of a unit or container.
    pub name: String,
    /// The unit or container of a process.
    pub place: Option<String>,
    pub processes: u64,
    pub threads: u64,
    pub calls: u64,
    pub budget: Budget,
    /// Part of the blocked time in which threads waited for work, which is not in `idle_ns`.
    pub resting_ns: u64,
    /// What threads waited for, the longest first, without idle waits and waits for work.
    pub causes: Vec<Cause>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Cause {
    pub label: String,
    pub class: String,
    pub blocked_ns: u64,
}

/// Groups with the most time, and how many were left out.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Groups {
    pub rows: Vec<Group>,
    pub left_out: u64,
}
