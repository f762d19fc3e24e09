// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of limited length.

use std::io::{BufRead, Read};

use anyhow::{bail, Context, Result};

/// Reads the next line without its line end, of at most `limit` bytes. Returns false at the end of the
/// input.
pub(super) fn next_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    limit: usize,
) -> Result<bool> {
    line.clear();
    let taken = input
        .by_ref()
        .take(limit as u64 + 1)
        .read_until(b'\n', line)
        .context("it cannot be read")?;
    if taken > limit {
        bail!("a line has more than {limit} bytes");
    }
    while line.last().is_some_and(|end| matches!(end, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(taken > 0)
}
