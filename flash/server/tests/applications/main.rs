// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications whose processes write to the client's socket themselves: good ones, bad ones, and none.

mod answers;
mod clients;
mod encrypted;
mod exchange;
mod failures;
mod limits;
#[path = "../program/mod.rs"]
mod program;
mod support;
