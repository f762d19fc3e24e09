// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests say that they could not be tried here.

use std::io::Write;

/// Prints `SKIPPED` and what was not tried, with the reason: past the test runner's capture, so that it
/// shows in a green run too, and in one piece, since others print at the same time. The line before it
/// may be the runner's, and not complete.
#[expect(clippy::disallowed_methods, reason = "its text is a test's own")]
pub fn skipped(what: &str) {
    let line = format!("\nSKIPPED {what}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
