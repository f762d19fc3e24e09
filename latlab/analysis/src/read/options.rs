// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a file is read.

use super::quantity::{SizeUnit, TimeUnit};
use crate::request::Basis;

/// What the user says about a file that does not contain it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub basis: Option<Basis>,
    pub latency_column: Option<String>,
    pub latency_unit: Option<TimeUnit>,
    pub size_column: Option<String>,
    pub size_unit: Option<SizeUnit>,
    pub start_column: Option<String>,
    pub start_unit: Option<TimeUnit>,
    /// The first line of a CSV file is a request, not a header: columns are numbered from 1.
    pub no_header: bool,
    /// The number of the run in oha's database.
    pub run: Option<i64>,
}

impl Options {
    pub(super) fn names_columns(&self) -> bool {
        self.latency_column.is_some() || self.size_column.is_some() || self.start_column.is_some()
    }
}
