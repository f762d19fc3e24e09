// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of results.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}
