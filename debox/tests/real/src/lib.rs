// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests on real programs share.
//!
//! The harness of the truth tests (`debox/tests/suite`) starts debox, holds every report against the
//! schema and the sums that must come out, and cleans up. Here is what real programs need on top: a
//! run without debox to compare with, an account of CPU time that is not debox's, servers that are
//! ended whatever happens, and questions that are asked of a whole report.

mod account;
mod install;
mod programs;
mod report;
mod server;
mod tap;

pub use account::Account;
pub use install::require;
pub use install::take_turn;
pub use programs::done;
pub use programs::Language;
pub use programs::Programs;
pub use report::Story;
pub use server::free_port;
pub use tap::Measurement;
pub use tap::Tap;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// Runs a command without debox and expects success.
#[track_caller]
pub fn bare<S: AsRef<OsStr>>(command: &[S], directory: &Path) -> Output {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command[0].as_ref()));
    assert!(
        output.status.success(),
        "{:?} ended with {}; output:\n{}\nerrors:\n{}",
        command[0].as_ref(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
