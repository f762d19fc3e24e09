// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logic with unknown values.

pub(super) fn both(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

pub(super) fn either(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    let negated = |truth: Option<bool>| truth.map(|holds| !holds);
    negated(both(negated(left), negated(right)))
}
