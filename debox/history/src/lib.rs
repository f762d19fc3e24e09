//! The history of a program's system calls: every record, in order, as Apache Parquet.
//!
//! `debox/docs/history.md` describes the columns. [`Writer`] keeps a file that can be read at any time;
//! [`History`] reads files, also those of a recorder that was killed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod calls;
pub mod careful;
mod columns;
mod encode;
mod flight;
mod footer;
mod meta;
mod parquet_file;
mod processes;
mod read;
mod recover;
mod repair;
mod rows;
mod schema;
mod write;

pub use calls::Rows;
pub use flight::Flight;
pub use meta::{Account, Gap, Life, Lost, Meta, SCHEMA};
pub use parquet_file::tail_of;
pub use processes::ProcessNames;
pub use read::{Batches, File, Group, History};
pub use repair::{repair, repair_into, Repaired};
pub use schema::{schema, sleep_fields};
pub use write::{End, Limits, Rest, Summary, Writer};
