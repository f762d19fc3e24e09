// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests report that they cannot run here.

use std::io::Write;

/// Prints `SKIPPED` and what was not tested, with the reason. The text bypasses the test runner's
/// capture, so it shows in a successful run, too. It is written in one piece, since other tests print
/// at the same time, and begins with a line end, since the runner's last line may be incomplete.
#[expect(clippy::disallowed_methods, reason = "its text is a test's own")]
pub fn skipped(what: &str) {
    let line = format!("\nSKIPPED {what}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
