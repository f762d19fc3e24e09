// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to export.

use debox_model::predicate::Predicate;

/// The format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A trace for ui.perfetto.dev and `trace_processor`: binary.
    Perfetto,
    /// A profile for `go tool pprof`: binary, compressed.
    Pprof,
    /// Lines of a stack and a number, for flame graphs.
    Folded,
    /// A line of JSON for each call.
    Ndjson,
    /// A line for each call, to be read.
    Text,
    /// A line of values for each call, separated by commas.
    Csv,
}

impl Format {
    /// Whether the format is binary.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Perfetto | Format::Pprof)
    }
}

/// The time that a flame graph shows, and that pprof shows first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weight {
    #[default]
    Blocked,
    Cpu,
    Runqueue,
    /// Instead of the times of calls, the samples of what threads computed.
    Samples,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub format: Format,
    pub weight: Weight,
    /// Selects records; without it, all are exported.
    pub filter: Option<Predicate>,
    /// Only calls that began at least this long after the start of the recording.
    pub from_ns: Option<u64>,
    /// Only calls that began before this time after the start.
    pub to_ns: Option<u64>,
}
