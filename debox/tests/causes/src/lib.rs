// SPDX-License-Identifier: MIT OR Apache-2.0
//! A corpus of planted causes: programs in five languages of which each has one known cause of being slow,
//! some that have none, and whether the headline of a report names it, in each of the ways to measure.

pub mod beside;
pub mod corpus;
mod judge;
mod measure;

pub use corpus::{Case, CORPUS};
pub use judge::judge;
pub use measure::{Headlined, Way, WAYS};

/// The sources.
pub const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
