// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness of the whole-system tests.
//!
//! A truth program (`debox/tests/truth/programs/*.c`) waits in ways that it knows from its own clock and
//! prints what it knows. A test runs it under the built `debox` command, reads the JSON report and
//! compares. A case reads in one line:
//!
//! ```text
//! let run = Debox::run("pipe_read").args(["thread", "200"]).report();
//! run.call("read").sleep("pipe empty").count(1).blocked_as_known().waker_task("writer");
//! ```
//!
//! Every report that passes through [`Debox::report`] is held against the JSON Schema, against the
//! sums that must come out in any report (`invariants.rs`) and against the program's own account of
//! its CPU time and page faults.
//!
//! The report is read as plain JSON and not through the engine's types: the tests see what any other
//! consumer sees.

mod background;
mod binary;
pub mod brokered;
mod facts;
mod group;
mod invariants;
mod kernel_objects;
mod machine;
mod rows;
mod run;

pub use background::Background;
pub use binary::debox_binary;
pub use facts::Facts;
pub use group::{Group, Limit};
pub use invariants::check_report;
pub use kernel_objects::KernelObject;
pub use machine::kernel_has;
pub use machine::program;
pub use machine::require_root;
pub use machine::skipped;
pub use machine::slowness;
pub use machine::wait_for;
pub use machine::Exclusive;
pub use machine::Scratch;
pub use rows::Call;
pub use rows::Measured;
pub use rows::Sleeps;
pub use run::Debox;
pub use run::Finished;
pub use run::Running;
pub use run::HIDDEN_SWITCHES_ATTEMPTS;

/// Milliseconds in the unit of every report.
pub const fn ms(milliseconds: u64) -> u64 {
    milliseconds * 1_000_000
}

/// What two clocks read one after the other may differ by: a program's stamp and a probe's.
pub const CLOCK_SLACK_NS: u64 = 100_000;

/// The same where time runs slower.
pub fn clock_slack_ns() -> u64 {
    CLOCK_SLACK_NS * slowness()
}
