// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit statuses.

/// A benchmark gave a wrong result.
pub const WRONG: u8 = 3;
/// hbench itself failed.
pub const FAILED: u8 = 125;
/// A signal ended the run.
pub const INTERRUPTED: u8 = 130;
