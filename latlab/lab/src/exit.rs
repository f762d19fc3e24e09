// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command's exit statuses.

/// Exit status if the figures are not the server's.
pub const NOT_VALID: u8 = 3;

/// Exit status if latlab itself failed.
pub const FAILED: u8 = 125;
