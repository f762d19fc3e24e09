// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables without lines.
//!
//! [`Layout`] sets cells in columns; programs with rules of their own for what fits use it directly. [`Grid`] is
//! a table of names, numbers and words that needs no such rules.

mod grid;
mod layout;

pub use grid::Grid;
pub use layout::{Column, Layout, Tone, Width};
