// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command's exit statuses.

/// Exit status when debox itself failed, as with `env` and `timeout`.
pub const FAILED: u8 = 125;
