//! Analyzes the requests of a load, together with the server's own history.
//!
//! [`read`](mod@read) reads the rows of `latlab` and of other tools. [`report`](mod@report) computes
//! the figures: percentiles and distributions, the breakdown by decile, service inversion, and, with
//! a history of `debox record`, burstiness and causes. [`command`] is `latlab analyze`, and
//! [`page`](mod@page) makes its page. `latlab/docs/latlab-analysis.md` has the formulas and their
//! places in the papers.
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
mod mode;
mod number;
pub mod page;
pub mod read;
pub mod report;
mod request;
pub mod rows;
mod stats;
pub mod text;

pub use intervals::{bounded_percentiles, Interval};
pub use mode::Mode;
pub use request::{Basis, Request, Run, Unit};
