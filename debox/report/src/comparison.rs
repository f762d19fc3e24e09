// SPDX-License-Identifier: MIT OR Apache-2.0
//! The differences between two runs as data.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub base: Vec<String>,
    pub base_span_ns: u64,
    pub base_calls: u64,
    pub span_ns: u64,
    pub calls: Vec<CallDifference>,
    /// The caveats of the base recording.
    pub base_caveats: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CallDifference {
    pub call: String,
    pub base_count: u64,
    pub count: u64,
    pub median: Difference,
    pub p99: Difference,
    pub total: Difference,
}

/// A difference of wall times.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Difference {
    pub base_ns: u64,
    pub ns: u64,
    /// The interval that contains the change, in percent of the base. Null: too few calls.
    pub change_percent: Option<(f64, f64)>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The data show no difference.
    None,
    Less,
    More,
    /// Too few calls on a side.
    TooFew,
}
