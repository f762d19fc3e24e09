// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells whether one job answers the questions of several requests.

use crate::files::FileId;

/// Two jobs with the same key have the same result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// By the root's number.
    Open {
        root: u64,
        names: Vec<Vec<u8>>,
        /// So many bytes of the file are brought, too.
        first: u64,
    },
    List {
        directory: FileId,
        title: String,
    },
    Warm {
        file: FileId,
        begin: u64,
        end: u64,
    },
}
