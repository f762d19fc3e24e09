// SPDX-License-Identifier: MIT OR Apache-2.0
//! How requests were issued.

use serde::{Deserialize, Serialize};

/// How the load was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A connection sends its next request after the answer to the last.
    Closed,
    /// Requests are sent when they are due.
    Open,
}
