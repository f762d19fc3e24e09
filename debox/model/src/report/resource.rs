// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was waited for.

use serde::{Deserialize, Serialize};

/// What a sleep waited on.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// `file`, `directory`, `pipe`, `socket`, `epoll`, `futex`, `mutex`, `rwsem`, `timer` ...
    pub kind: String,
    /// Null when it is not known.
    pub name: Option<String>,
}
