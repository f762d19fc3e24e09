// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a check.

use serde::Serialize;

/// Whether a need is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    Met,
    /// Debox works but shows less.
    Limits,
    /// Debox does not work here.
    Prevents,
    /// It could not be determined, mostly for lack of privilege.
    Unchecked,
    /// Missing, but not needed by anything that debox does so far.
    Unused,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub need: String,
    pub standing: Standing,
    /// What was found: a value, a sentence.
    pub found: String,
    /// What the lack costs; empty when the need is met.
    pub cost: String,
    /// What would remedy it; empty if no remedy is known.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(need: &str, standing: Standing, found: impl Into<String>) -> Finding {
        Finding {
            need: need.to_string(),
            standing,
            found: found.into(),
            cost: String::new(),
            remedy: String::new(),
        }
    }

    /// A finding of a need that is met.
    pub fn met(need: &str, found: impl Into<String>) -> Finding {
        Finding::new(need, Standing::Met, found)
    }

    /// A finding of a lack with which debox shows less.
    pub fn limits(need: &str, found: impl Into<String>) -> Finding {
        Finding::new(need, Standing::Limits, found)
    }

    pub(super) fn prevents(need: &str, found: impl Into<String>) -> Finding {
        Finding::new(need, Standing::Prevents, found)
    }

    pub(super) fn unchecked(need: &str, found: impl Into<String>) -> Finding {
        Finding::new(need, Standing::Unchecked, found)
    }

    pub(super) fn unused(need: &str, found: impl Into<String>) -> Finding {
        Finding::new(need, Standing::Unused, found)
    }

    /// Adds what the lack costs.
    pub fn cost(self, cost: impl Into<String>) -> Finding {
        Finding {
            cost: cost.into(),
            ..self
        }
    }

    /// Adds the remedy.
    pub fn remedy(self, remedy: impl Into<String>) -> Finding {
        Finding {
            remedy: remedy.into(),
            ..self
        }
    }
}

/// The text of `found` if only root can check.
pub(super) const NEEDS_ROOT: &str = "not tried, it needs root";
