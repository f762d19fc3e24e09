//! Two runs against each other.

use serde::Serialize;

use crate::intervals::middle;
use crate::report::Measured;
use crate::stats::PERCENTS;

/// Many figures are compared at once.
const CONFIDENCE: f64 = 0.99;
/// As many standard errors are to both sides of a difference, at 99 %.
const ERRORS: f64 = 2.576;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Lower,
    Higher,
    /// No difference that the data show.
    None,
    /// Too few requests to say.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// `mean`, `p5` and so on; `service_inversion`.
    pub figure: &'static str,
    pub base: f64,
    pub value: f64,
    /// In which the change is: in per cent; of the service inversion, as it is.
    pub change: Option<(f64, f64)>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub base: String,
    pub run: String,
    pub confidence: f64,
    pub differences: Vec<Difference>,
}

const NAMES: [&str; 5] = ["p5", "p50", "p95", "p99", "p99_9"];

/// What is different in `run`. Both are in the same unit.
pub fn compare(base: &Measured, run: &Measured) -> Comparison {
    let mut differences = Vec::new();
    let draws = base.draws.as_ref().zip(run.draws.as_ref());
    let change = |pick: &dyn Fn(&crate::intervals::Draws) -> &Vec<f64>| {
        let (base, run) = draws?;
        let drawn = pick(run).iter().zip(pick(base));
        let changes: Vec<f64> = drawn
            .map(|(a, b)| 100.0 * (a / b.max(1e-9) - 1.0))
            .collect();
        Some(middle(&changes, CONFIDENCE))
    };
    let mut add = |figure, base: f64, value: f64, change: Option<(f64, f64)>| {
        let verdict = match change {
            None => Verdict::Unknown,
            Some((low, _)) if low > 0.0 => Verdict::Higher,
            Some((_, high)) if high < 0.0 => Verdict::Lower,
            Some(_) => Verdict::None,
        };
        differences.push(Difference {
            figure,
            base,
            value,
            change,
            verdict,
        });
    };
    add(
        "mean",
        base.report.latency.mean.0,
        run.report.latency.mean.0,
        change(&|draws| &draws.mean),
    );
    let (before, after) = (base.report.percentiles.all(), run.report.percentiles.all());
    for (at, percent) in PERCENTS.iter().enumerate() {
        // So few requests are beyond it that drawing them anew says nothing.
        let beyond = |measured: &Measured| {
            measured.report.requests as f64 * percent.min(100.0 - percent) / 100.0
        };
        let enough = beyond(base).min(beyond(run)) >= 10.0;
        let change = change(&|draws| &draws.percentiles[at]).filter(|_| enough);
        add(NAMES[at], before[at].0, after[at].0, change);
    }
    let inversions = base
        .report
        .service_inversion
        .zip(run.report.service_inversion);
    if let Some((before, after)) = inversions {
        let errors = base.inversion_error.zip(run.inversion_error);
        let change = errors.map(|(a, b)| {
            let error = ERRORS * a.hypot(b);
            (after - before - error, after - before + error)
        });
        add("service_inversion", before, after, change);
    }
    Comparison {
        base: base.report.name.clone(),
        run: run.report.name.clone(),
        confidence: CONFIDENCE,
        differences,
    }
}
