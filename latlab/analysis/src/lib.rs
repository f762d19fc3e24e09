//! What the requests of a load say of a server, and what the server's own history adds to it.
//!
//! [`read`](mod@read) takes the rows of `latlab` and of other tools; [`report`](mod@report) makes the
//! figures: percentiles and distributions, the breakdown by decile, service inversion, and, with a
//! history of `debox record`, burstiness and causes. [`command`] is `latlab analyze`, and
//! [`page`](mod@page) draws.
//! `latlab/docs/latlab-analysis.md` has the formulas and where in the papers they stand.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod command;
mod compare;
mod deciles;
mod fairness;
mod findings;
pub mod history;
pub mod ideal;
pub mod in_flight;
mod intervals;
pub mod inversion;
pub mod page;
pub mod read;
pub mod report;
mod request;
pub mod rows;
mod stats;
pub mod text;

pub use request::{Basis, Mode, Request, Run, Unit};
