// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report on one file or several.

use serde::Serialize;

use super::RunReport;
use crate::compare::Comparison;
use crate::findings::{findings, Finding};

/// Name and version of the JSON. Fields may be added without a new version.
pub const SCHEMA: &str = "latlab.analysis/1";

/// For one file, the JSON is the object itself; for several, they are in `runs`.
#[derive(Debug, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub tool_version: &'static str,
    pub findings: Vec<Finding>,
    #[serde(flatten)]
    pub only: Option<RunReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunReport>,
    /// Comparison of each run with another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<Comparison>,
}

impl Report {
    pub fn new(mut runs: Vec<RunReport>) -> Report {
        let findings = findings(&runs);
        let only = if runs.len() == 1 { runs.pop() } else { None };
        Report {
            schema: SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION"),
            findings,
            only,
            runs,
            against: Vec::new(),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &RunReport> {
        self.only.iter().chain(&self.runs)
    }
}
