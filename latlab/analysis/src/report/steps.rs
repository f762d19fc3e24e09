//! The figures of each step of the rate.

use serde::Serialize;

use super::Number;
use crate::request::{Request, Run};
use crate::stats::{self, mean, Percentiles};

/// Requests intended to start in one step of the rate, after the warm-up. Latencies are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    pub offered_rps: f64,
    /// Since the start of the run. Does not include the warm-up.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// Requests that were answered without an error, and the others.
    pub requests: u64,
    pub failed: u64,
    /// Null if no request was answered.
    pub mean: Option<Number>,
    pub percentiles: Option<Percentiles<Number>>,
    pub max: Option<Number>,
}

/// The steps of a run that has several.
pub fn steps(run: &Run, scored: &[Request]) -> Vec<StepReport> {
    let Some(steps) = run.meta.as_ref().and_then(|meta| meta.steps.as_ref()) else {
        return Vec::new();
    };
    let warm_up_ns = run.meta.as_ref().and_then(|meta| meta.warmup_ns);
    let mut latencies: Vec<Vec<u64>> = vec![Vec::new(); steps.len()];
    for request in scored {
        if let Some(its) = latencies.get_mut(usize::from(request.step)) {
            its.push(request.latency);
        }
    }
    let measured = steps.iter().zip(latencies).enumerate();
    let measured = measured.filter_map(|(index, (step, mut latencies))| {
        let begin_ns = step.begin_ns.max(warm_up_ns.unwrap_or(i64::MIN));
        latencies.sort_unstable();
        let answered = !latencies.is_empty();
        let number = |ticks: f64| Number(ticks / run.unit.ticks());
        (begin_ns < step.end_ns).then(|| StepReport {
            offered_rps: step.offered_rps,
            begin_ns,
            end_ns: step.end_ns,
            requests: latencies.len() as u64,
            failed: run.failed_in_steps.get(index).copied().unwrap_or(0),
            mean: answered.then(|| number(mean(&latencies))),
            percentiles: answered.then(|| {
                let percentiles = stats::percentiles(&latencies);
                Percentiles::from(percentiles.map(|ticks| number(ticks as f64)))
            }),
            max: latencies.last().map(|ticks| number(*ticks as f64)),
        })
    });
    measured.collect()
}
