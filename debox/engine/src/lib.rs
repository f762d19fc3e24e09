//! The DeBox engine: load the probes, enrol tasks, read records, explain sites.
//!
//! A [`Session`] is the probes at work; [`Session::finish`] turns what they measured into a
//! [`report::Report`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod broker;
mod callers;
pub mod calls;
mod clock;
mod collect;
mod cpu_clocks;
mod deadlock;
mod directory;
pub mod doctor;
mod explain;
mod gate;
pub mod history;
pub mod inband;
pub mod kernel;
pub mod labels;
mod listeners;
mod memory_file;
mod merge;
mod monitor;
#[cfg(fuzzing)]
pub mod outside;
#[cfg(all(test, not(fuzzing)))]
mod outside;
mod packages;
mod plain_file;
pub mod predicate;
mod process;
pub mod record;
mod recorder;
pub mod report;
mod resources;
pub mod rest;
pub mod runtimes;
mod samples;
pub mod session;
mod signals;
mod stacks;
pub mod symbols;
mod tables;
mod titles;
pub mod trace;
mod tree;
pub mod trigger;
mod unwind;
mod usertap;
mod waited;

#[allow(clippy::all, unused_imports)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/debox.skel.rs"));
}

#[allow(clippy::all, unused_imports)]
mod skeleton_gate {
    include!(concat!(env!("OUT_DIR"), "/gate.skel.rs"));
}

pub use collect::Outcome;
pub use directory::SessionDirectory;
pub use inband::scope;
pub use monitor::Monitor;
pub use predicate::Predicate;
pub use recorder::{Missing, Recorder};
pub use session::{Detail, Options, Session, Tap};
pub use trace::TraceOptions;
pub use trigger::Trigger;
