// SPDX-License-Identifier: MIT OR Apache-2.0
//! Microbenchmarks of the operating system.
//!
//! [`benchmarks`] has one file for each. [`runner`] starts a process for each sample, in which [`sample`] calls
//! the benchmark's function with a [`sampler`]. [`capture`] says what machine it was. [`decompose`] does so under `debox`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arithmetic;
pub mod benchmark;
pub mod benchmarks;
pub mod capture;
mod chain;
pub mod clock;
pub mod decompose;
mod descriptors;
mod failure;
mod hello;
pub mod noise;
mod ring;
pub mod runner;
pub mod sample;
pub mod sampler;
mod scratch;
pub mod signals;
mod stream;
mod sys;
