// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recording lacks.

/// What could not be recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    pub records: u64,
    pub sleeps: u64,
    pub stacks: u64,
    pub threads: u64,
    pub probe_misses: u64,
    /// Stamps of the program around its own calls (`--user-level`) that cannot be true.
    pub stamps_refused: u64,
    /// How often the broker ended, or did not answer any more.
    pub interruptions: u64,
    /// Without privilege: threads that were monitored until they got other rights than the recorder's.
    pub left: Vec<u32>,
    /// Programs whose command lines there was no room for.
    pub programs: u64,
    /// Processes that should be recorded and are not, in sentences.
    pub left_out: Vec<String>,
}
