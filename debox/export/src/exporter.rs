// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the formats share.

use anyhow::Result;
use debox_history::File;
use debox_model::history::Call;

/// One format.
pub trait Exporter {
    fn call(&mut self, file: &File, call: &Call) -> Result<()>;
    fn finish(self: Box<Self>) -> Result<u64>;
}

pub const CANNOT_WRITE: &str = "cannot write the export";

/// A time of a file's records, in nanoseconds since 1970.
pub fn realtime(file: &File, ns: u64) -> i128 {
    i128::from(ns) + i128::from(file.meta.realtime_offset_ns)
}

/// What was lost, in words; nothing if nothing was.
pub fn losses(file: &File) -> Option<String> {
    let lost = &file.meta.lost;
    let counts = [
        (lost.records, "records"),
        (lost.sleeps, "sleeps"),
        (lost.stacks, "stacks"),
        (lost.threads, "threads"),
        (lost.probe_misses, "events"),
        (lost.unwritten, "records that could not be written"),
    ];
    let words: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!words.is_empty()).then(|| format!("lost: {}", words.join(", ")))
}
