//! Latency over the time of a run.

use std::ops::Range;

use serde::Serialize;

use super::Number;
use crate::request::{Request, Run};

/// Intervals of all steps together, at most.
const INTERVALS_MAX: usize = 120;
/// With fewer requests in an interval, its percentiles are unreliable.
const REQUESTS_MIN: usize = 50;

/// Requests intended to start in a part of the run that were answered without an error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Since the start of the run.
    pub begin_ns: i64,
    pub end_ns: i64,
    pub requests: u64,
    /// Latencies; null if there was no request.
    pub p50: Option<Number>,
    pub p95: Option<Number>,
    pub p99: Option<Number>,
    pub max: Option<Number>,
}

/// Intervals of equal length. If the rate has steps, intervals are equal within each step, so that none covers
/// two rates. Empty if times are unknown.
pub fn over_time(run: &Run, scored: &[Request]) -> Vec<Interval> {
    if !run.has_times || scored.is_empty() {
        return Vec::new();
    }
    let mut in_time: Vec<(i64, u64)> = scored
        .iter()
        .map(|its| (its.begin_ns, its.latency))
        .collect();
    in_time.sort_unstable();
    let (first, last) = (in_time[0].0, in_time[in_time.len() - 1].0);
    let meta = run.meta.as_ref();
    let parts: Vec<Range<i64>> = match meta.and_then(|meta| meta.steps.as_ref()) {
        Some(steps) => {
            let warm_up_ns = meta.and_then(|meta| meta.warmup_ns).unwrap_or(i64::MIN);
            let of_step = steps
                .iter()
                .map(|step| step.begin_ns.max(warm_up_ns)..step.end_ns);
            of_step.filter(|part| !part.is_empty()).collect()
        }
        None => std::iter::once(first..last.saturating_add(1)).collect(),
    };
    let most = (INTERVALS_MAX / parts.len().max(1)).max(1);
    parts
        .into_iter()
        .flat_map(|part| intervals(&in_time, part, most, run.unit.ticks()))
        .collect()
}

fn intervals(in_time: &[(i64, u64)], part: Range<i64>, most: usize, unit: f64) -> Vec<Interval> {
    let from = |ns: i64| in_time.partition_point(|its| its.0 < ns);
    let requests = from(part.end) - from(part.start);
    let count = (requests / REQUESTS_MIN).clamp(1, most);
    let length = i128::from(part.end) - i128::from(part.start);
    // The result is between both ends, so it fits into the same type.
    let edge = |at: usize| (i128::from(part.start) + length * at as i128 / count as i128) as i64;
    (0..count)
        .map(|at| {
            let (begin_ns, end_ns) = (edge(at), edge(at + 1));
            let its = &in_time[from(begin_ns)..from(end_ns)];
            let mut latencies: Vec<u64> = its.iter().map(|its| its.1).collect();
            latencies.sort_unstable();
            let number = |ticks: u64| Number(ticks as f64 / unit);
            let at_percent = |percent: f64| {
                let rank = kit_stats::rank(latencies.len(), percent);
                latencies.get(rank).copied().map(number)
            };
            Interval {
                begin_ns,
                end_ns,
                requests: latencies.len() as u64,
                p50: at_percent(50.0),
                p95: at_percent(95.0),
                p99: at_percent(99.0),
                max: latencies.last().copied().map(number),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_request_is_in_one_interval(
            mut in_time in prop::collection::vec((-1000i64..100_000, 0u64..1000), 1..2000), most in 1usize..200
        ) {
            in_time.sort_unstable();
            let part = in_time[0].0..in_time[in_time.len() - 1].0 + 1;
            let found = intervals(&in_time, part.clone(), most, 1.0);
            prop_assert!(found.len() <= most);
            prop_assert_eq!(found.iter().map(|one| one.requests).sum::<u64>(), in_time.len() as u64);
            prop_assert!(found.windows(2).all(|pair| pair[0].end_ns == pair[1].begin_ns));
            prop_assert_eq!((found[0].begin_ns, found[found.len() - 1].end_ns), (part.start, part.end));
            let max = found.iter().filter_map(|one| one.max).map(|max| max.0 as u64).max();
            prop_assert_eq!(max, in_time.iter().map(|its| its.1).max());
            prop_assert!(found.iter().all(|one| one.p50 <= one.p95 && one.p99 <= one.max));
        }
    }
}
