// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded microbenchmarks.
//!
//! [`file`](mod@file) reads and writes them, [`figures`](mod@figures) computes the figures of each benchmark,
//! [`compare`](mod@compare) finds what differs between two files, and [`hierarchy`](mod@hierarchy) predicts
//! benchmarks from others. [`decomposition`](mod@decomposition) has what `debox` saw of one. [`text`](mod@text) prints
//! them, and [`picture`](mod@picture) draws them.
//!
//! [`machine`](mod@machine) and [`application`](mod@application) are characterization vectors, which
//! [`vectors`](mod@vectors) reads and writes. [`characterize`](mod@characterize) makes an application's from a
//! recording, [`predict`](mod@predict) says how long it takes on other machines, and [`contrast`](mod@contrast) which
//! of its parts make the difference. [`calibrate`](mod@calibrate) makes a machine's vector from applications' times.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod application;
pub mod calibrate;
pub mod characterize;
pub mod compare;
pub mod contrast;
pub mod decomposition;
pub mod environment;
mod families;
pub mod figures;
pub mod file;
pub mod hierarchy;
pub mod join;
mod least_squares;
pub mod machine;
pub mod mapping;
pub mod meta;
mod overlap;
pub mod picture;
pub mod predict;
pub mod prediction_text;
mod primitives;
pub mod quota;
mod relation;
pub mod text;
pub mod vector_text;
pub mod vectors;
pub mod words;
mod work;
