//! What DeBox measures, as plain data: calls, reports, the names of waits, and predicates over calls.
//!
//! Nothing here loads a probe, reads another process or needs clang. The engine (`debox`) fills these types;
//! histories, reports and exports read them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod calls;
pub mod decision;
pub mod frame;
pub mod history;
pub mod labels;
pub mod loops;
#[cfg(feature = "fuzzing")]
pub mod outside;
#[cfg(all(test, not(feature = "fuzzing")))]
mod outside;
pub mod predicate;
pub mod report;
pub mod rest;
pub mod runtimes;

pub use frame::Frame;
pub use predicate::Predicate;

/// Length of a task's name in the kernel, with its terminating zero (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;
