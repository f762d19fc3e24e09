//! Requests intended to start in a part of the measured time, and replies that ended in it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::Percentiles;
use crate::load::{Delays, Step};
use crate::rows::{Failure, Row};

#[derive(Default)]
pub struct Gathered {
    pub from_intended: Delays,
    pub from_start: Delays,
    pub to_first_byte: Delays,
    pub errors: BTreeMap<&'static str, u64>,
    /// For requests whose status is wrong.
    pub statuses: BTreeMap<u16, u64>,
    /// Good replies that ended in this part, and the bytes of their bodies.
    pub ended_within: u64,
    pub bytes: u64,
}

impl Gathered {
    /// Adds a request intended to start in this part.
    pub fn add(&mut self, row: &Row) {
        match (row.failure, row.end_ns) {
            (None, Some(end)) => {
                self.from_intended.record(end - row.intended_ns);
                self.from_start.record(end - row.start_ns);
                if let Some(first) = row.first_byte_ns {
                    self.to_first_byte.record(first - row.start_ns);
                }
            }
            (failure, _) => {
                let name = failure.map_or("unknown", |failure| failure.name());
                *self.errors.entry(name).or_default() += 1;
                if failure == Some(Failure::Status) {
                    *self.statuses.entry(row.status).or_default() += 1;
                }
            }
        }
    }

    /// Adds a good reply that ended in this part.
    pub fn add_ended(&mut self, row: &Row) {
        self.ended_within += 1;
        self.bytes += row.received;
    }

    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// A step of the rate, as far as it is in the measured time.
pub struct GatheredStep {
    offered_rps: f64,
    within_ns: Range<i64>,
    gathered: Gathered,
}

/// The steps of a run that has several. Steps that end before the warm-up does are left out.
#[derive(Default)]
pub struct Steps(Vec<GatheredStep>);

impl Steps {
    pub fn new(steps: &[Step], warmup_ns: i64) -> Steps {
        if steps.len() < 2 {
            return Steps::default();
        }
        let mut end_ns = 0;
        let measured = steps.iter().filter_map(|step| {
            let begin_ns = end_ns.max(warmup_ns);
            end_ns += step.ns;
            (begin_ns < end_ns).then(|| GatheredStep {
                offered_rps: step.rps,
                within_ns: begin_ns..end_ns,
                gathered: Gathered::default(),
            })
        });
        Steps(measured.collect())
    }

    fn at(&mut self, ns: i64) -> Option<&mut Gathered> {
        let found = self.0.iter_mut().find(|step| step.within_ns.contains(&ns));
        found.map(|step| &mut step.gathered)
    }

    pub fn add(&mut self, row: &Row) {
        if let Some(step) = self.at(row.intended_ns) {
            step.add(row);
        }
        if let (Some(end), None) = (row.end_ns, row.failure) {
            if let Some(step) = self.at(end) {
                step.add_ended(row);
            }
        }
    }

    /// `None` if the run has no steps. `until_ns`: when the run ended.
    pub fn summaries(&self, until_ns: i64) -> Option<Vec<StepSummary>> {
        let begun = self.0.iter().filter(|step| step.within_ns.start < until_ns);
        let all: Vec<StepSummary> = begun.map(|step| step.summary(until_ns)).collect();
        (!all.is_empty()).then_some(all)
    }
}

impl GatheredStep {
    fn summary(&self, until_ns: i64) -> StepSummary {
        let end_ns = self.within_ns.end.min(until_ns);
        let seconds = (end_ns - self.within_ns.start) as f64 / 1e9;
        let gathered = &self.gathered;
        StepSummary {
            offered_rps: self.offered_rps,
            begin_ns: self.within_ns.start,
            end_ns,
            requests: gathered.from_intended.len() + gathered.failed(),
            ok: gathered.from_intended.len(),
            errors: gathered.errors.clone(),
            throughput_rps: gathered.ended_within as f64 / seconds,
            bytes_per_second: gathered.bytes as f64 / seconds,
            latency_from_intended: Percentiles::of(&gathered.from_intended),
            latency_from_start: Percentiles::of(&gathered.from_start),
            first_byte: Percentiles::of(&gathered.to_first_byte),
        }
    }
}

/// One step of the rate, in `latlab.run/1`.
#[derive(Debug, Clone, Serialize)]
pub struct StepSummary {
    pub offered_rps: f64,
    /// Since the start of the run. Does not include the warm-up.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// Requests intended to start in the step.
    pub requests: u64,
    pub ok: u64,
    pub errors: BTreeMap<&'static str, u64>,
    /// Good replies per second that ended in the step.
    pub throughput_rps: f64,
    pub bytes_per_second: f64,
    pub latency_from_intended: Option<Percentiles>,
    pub latency_from_start: Option<Percentiles>,
    pub first_byte: Option<Percentiles>,
}
