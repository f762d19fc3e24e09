//! The load side of the latency laboratory: which requests are made, when, and what came back.
//!
//! A request passes through it in this order:
//!
//! - [`fileset`]: the files that the server has, of which each byte is known from a seed;
//! - [`workload`]: which file the next request asks for, and what must come back;
//! - [`classes`]: files in memory and names that are not, for requests of two classes;
//! - [`load`]: when the request is made, on which connection, and what came back;
//! - [`rows`]: each request as a row, spooled while the load runs and afterwards written as Parquet;
//! - [`run`]: combines the generator processes, and decides whether the results are valid;
//! - [`summary`]: what a user wants to know first.
//!
//! [`servers`] starts servers, and [`confine`] limits their resources. [`dynamic`] and [`fastcgi`] are the
//! program that serves the dynamic requests behind a server. [`programmed`] is a server with known service
//! times, for testing. [`signals`] has latlab undo everything when it is terminated. [`leftover`] finds what
//! it could not undo because it was killed, [`processes`] identifies its servers, and [`recover`] reads its
//! rows.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod classes;
pub mod confine;
pub mod content;
pub mod dynamic;
pub mod fastcgi;
pub mod fileset;
pub mod hdr;
pub mod leftover;
mod listener;
pub mod load;
pub mod processes;
pub mod programmed;
pub mod recover;
pub mod reply;
pub mod rows;
pub mod run;
pub mod servers;
pub mod signals;
pub mod summary;
pub mod sys;
pub mod tls;
pub mod units;
pub mod worker;
pub mod workload;
