// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of repeated measurements, and how certain they are.

mod bootstrap;
mod jackknife;
mod order;
mod shape;
mod simultaneous;

pub use bootstrap::{blocks, draw_blocks, middle, trimmed_draws, CONFIDENCE, DRAWS};
pub use jackknife::{jackknife, LEFT_OUT};
pub use order::{median, rank, trimmed_mean};
pub use shape::{drift, two_modes, Drift, Modes, VALUES_MIN};
pub use simultaneous::{deviation, simultaneous, standardized};
