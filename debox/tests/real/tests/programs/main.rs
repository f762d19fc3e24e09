// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs under debox: each does its work as it does without, its report adds up, and what
//! the report says of its waiting is true.

mod archive;
mod compile;
mod golang;
mod nginx;
mod python;
mod redis;
mod refused;
mod sqlite;
