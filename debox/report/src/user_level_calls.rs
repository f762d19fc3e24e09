// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that both the program and the kernel have measured, as the report shows them.

use crate::aggregate::{Aggregate, CallSums};
use crate::names::{Name, Names};
use crate::parts::USER;
use crate::report::{UserLevel, UserLevelCall};

/// Calls that are shown, at most.
const CALLS: usize = 12;

/// `None` if it was not recorded. `calls` are in the order of the report.
pub fn user_level(
    sums: &Aggregate,
    calls: &[(String, Name, &CallSums)],
    asked_for: bool,
    begin: i64,
    names: &Names,
) -> Option<UserLevel> {
    let calls: Vec<_> = calls.iter().filter(|(name, ..)| name != USER).collect();
    let measured = |call: &CallSums| call.user.as_ref().map_or(0, |user| user.count);
    let count: u64 = calls.iter().map(|(.., call)| measured(call)).sum();
    if !asked_for && count == 0 {
        return None;
    }
    let all: u64 = calls.iter().map(|(.., call)| call.count).sum();
    let shown = calls.iter().filter_map(|(name, _, call)| {
        let user = call.user.as_ref()?;
        Some(user.call(name, call.count, begin, sums.has_irq, names))
    });
    let shown: Vec<UserLevelCall> = shown.collect();
    Some(UserLevel {
        count,
        not_measured: all.saturating_sub(count),
        calls_left_out: shown.len().saturating_sub(CALLS),
        calls: shown.into_iter().take(CALLS).collect(),
    })
}
