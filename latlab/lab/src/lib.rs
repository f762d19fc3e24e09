//! The load side of the latency laboratory: what is asked of a server, when, and what came back.
//!
//! A request passes through it in this order:
//!
//! - [`fileset`]: the files that the server has, of which each byte is known from a seed;
//! - [`workload`]: which of them the next request asks for, and what must come back;
//! - [`load`]: when it is asked, on which connection, and what did come back;
//! - [`rows`]: each request as a row, spooled while the load runs and written as Parquet after it;
//! - [`run`]: the generator processes together, and whether they can be believed;
//! - [`summary`]: what a person wants to know first.
//!
//! [`servers`] starts servers and [`confine`] limits what they may use. [`dynamic`] and [`fastcgi`] are the
//! program that serves the dynamic requests behind a server; [`programmed`] is a server whose service times
//! are known, to test all of this with. [`signals`] has latlab undo all of it when it is told to end;
//! [`leftover`] finds what it could not undo because it was killed, [`processes`] tells its servers from all
//! others, and [`recover`] reads its rows.
#![deny(clippy::print_stdout, clippy::print_stderr)]

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
