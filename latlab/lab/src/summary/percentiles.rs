// SPDX-License-Identifier: MIT OR Apache-2.0
//! Percentiles of latencies.

use serde::Serialize;

use crate::load::Delays;

/// Percentiles over successful requests, in nanoseconds; at most 0.1 % off.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub mean_ns: i64,
    pub p5_ns: i64,
    pub p50_ns: i64,
    pub p90_ns: i64,
    pub p95_ns: i64,
    pub p99_ns: i64,
    pub p999_ns: i64,
    pub max_ns: i64,
}

impl Percentiles {
    pub(super) fn of(delays: &Delays) -> Option<Percentiles> {
        (!delays.is_empty()).then(|| Percentiles {
            mean_ns: delays.mean() as i64,
            p5_ns: delays.quantile(0.05),
            p50_ns: delays.quantile(0.5),
            p90_ns: delays.quantile(0.9),
            p95_ns: delays.quantile(0.95),
            p99_ns: delays.quantile(0.99),
            p999_ns: delays.quantile(0.999),
            max_ns: delays.max(),
        })
    }
}
