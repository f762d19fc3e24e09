//! Analyzes a history of system calls.
//!
//! [`analyze`] reads the rows once ([`scan`](mod@scan)), in bounded memory, and makes a [`Report`]:
//! findings in sentences, and the figures that support them. [`page`](mod@page) draws it as one HTML
//! page that needs no network. [`requests`](mod@requests) finds what a server does for a request.
//! `debox/docs/report.md` is the user documentation.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod aggregate;
mod build;
mod caveats;
mod compare;
mod comparison;
mod cpu_waits;
mod event_loop;
mod event_loops;
mod findings;
mod flame;
mod flame_graph;
mod group;
mod groups;
pub mod headline;
mod held_up;
mod histogram;
mod in_flight;
mod loopers;
mod names;
pub mod page;
mod parts;
mod report;
pub mod requests;
mod rest;
mod resting;
mod scan;
mod segments;
mod sentences;
mod slow_calls;
mod stacks;
mod timeline;
mod trend;
mod user_level;
mod user_level_calls;
mod wait_key;
mod wait_lines;
mod waits;

use anyhow::Result;
use debox_history::History;
use rustc_hash::FxHashMap;

pub use comparison::{CallDifference, Comparison, Difference, Verdict};
pub use report::*;
pub use sentences::wait_sentence;
pub use trend::{GROWTH_MIN, RHO_MIN};

/// A report, and the data needed to compare it with another.
pub struct Analysis {
    pub report: Report,
    series: FxHashMap<String, segments::Series>,
}

/// Reads the whole history. `progress` is called from any thread, with the number of further rows
/// that are done.
pub fn analyze(
    history: &History,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis> {
    let names = names::Names::default();
    let mut sums = scan::scan(history, threads.max(1), &names, progress)?;
    let series = segments::series(std::mem::take(&mut sums.segments));
    let report = build::report(history, &sums, &series, &names)?;
    let series = series
        .into_iter()
        .map(|(name, series)| (names.get(name).to_string(), series))
        .collect();
    Ok(Analysis { report, series })
}

impl Analysis {
    /// Adds the differences from another run to the report.
    pub fn compare(&mut self, base: &Analysis) {
        let comparison =
            compare::compare((&base.report, &base.series), (&self.report, &self.series));
        self.report.against = Some(comparison);
    }
}
