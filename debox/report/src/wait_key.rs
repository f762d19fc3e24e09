// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a wait in the table of waits.

use debox_model::runtimes::Purpose;

use crate::names::Name;

/// Who waited for what, in which call, called from where, and held by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    pub comm: Name,
    pub is_main: bool,
    pub call: Name,
    pub label: Name,
    pub resource: Name,
    pub caller: Name,
    pub certainty: Name,
    pub owner: Name,
    pub doing: Name,
    /// What the functions of the program that led to it say that it is for.
    pub purpose: Purpose,
    /// Process and thread, if the wait counts when it is decided whether the thread rests or is stuck.
    pub thread: Option<(u32, u32)>,
}
