// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as reports write them.

use serde::{Serialize, Serializer};

use crate::request::Unit;
use kit_units as units;

/// A number that is written to JSON without a decimal point if it is whole.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// Lower and upper bound; null if there are too few requests.
pub type Bounds = (Option<Number>, Option<Number>);

/// A latency in its unit, as in `1.23 ms`; the plain number if the unit is unknown.
pub fn latency(value: Number, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds => units::time(value.0.max(0.0).round() as u64),
        Unit::Unstated => plain(value.0),
    }
}

/// With four significant digits.
pub fn plain(value: f64) -> String {
    let digits = if value == 0.0 {
        0
    } else {
        value.abs().log10().floor() as i32
    };
    let decimals = (3 - digits).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}
