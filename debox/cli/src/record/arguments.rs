// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that is recorded.

use std::ffi::OsString;

pub(super) fn texts(command: &[OsString]) -> Vec<String> {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.map(|word| word.into_owned()).collect()
}
