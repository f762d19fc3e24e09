// SPDX-License-Identifier: MIT OR Apache-2.0
//! A corpus of event loops of six runtimes: half of them never block, half of them do, and `debox guard` has to
//! tell one from the other.

mod corpus;
mod guarded;
mod nginx;

pub use corpus::{Case, Runtime, CORPUS};
pub use guarded::Guarded;

/// The sources.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
