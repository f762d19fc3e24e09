// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded microbenchmarks.
//!
//! [`file`](mod@file) reads and writes them, [`figures`](mod@figures) computes the figures of each benchmark,
//! [`compare`](mod@compare) finds what differs between two files, and [`hierarchy`](mod@hierarchy) predicts
//! benchmarks from others. [`text`](mod@text) prints them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod compare;
pub mod environment;
pub mod figures;
pub mod file;
pub mod hierarchy;
pub mod meta;
pub mod text;
pub mod words;
