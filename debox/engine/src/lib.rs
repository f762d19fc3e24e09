//! The DeBox engine: load the probes, enrol tasks, read records, explain sites.
//!
//! A [`Session`] holds the loaded probes; [`Session::finish`] turns their results into a
//! [`report::Report`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod broker;
mod callers;
mod clock;
mod collect;
mod cpu_clocks;
mod deadlock;
mod directory;
pub mod doctor;
mod explain;
mod gate;
pub mod inband;
mod kept;
pub mod kernel;
mod labelled;
mod listeners;
pub mod live;
mod live_tables;
mod memory_file;
mod merge;
mod module;
mod monitor;
mod opened;
mod options;
#[cfg(feature = "fuzzing")]
pub mod outside;
#[cfg(all(test, not(feature = "fuzzing")))]
mod outside;
mod packages;
mod plain_file;
mod process;
mod random;
pub mod record;
mod recorder;
mod resources;
mod samples;
pub mod serves;
pub mod session;
mod signals;
mod skeleton;
mod skeleton_arrivals;
mod skeleton_gate;
mod sleep_place;
mod stack_table;
mod stacks;
mod sums;
pub mod symbols;
mod tables;
pub mod targets;
mod titles;
pub mod trace;
mod tree;
pub mod trigger;
mod unwind;
mod usertap;
mod waited;

pub use collect::Outcome;
use debox_model::decision;
pub use debox_model::{
    calls, frame, history, labels, loops, predicate, report, rest, runtimes, Predicate,
};
pub use directory::SessionDirectory;
pub use inband::scope;
pub use monitor::Monitor;
pub use options::{Detail, Options, Tap};
pub use recorder::{Missing, Recorder};
pub use session::Session;
pub use trace::TraceOptions;
pub use trigger::Trigger;
