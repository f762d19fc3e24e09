//! The last footer of a file that was cut while a group was being written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{bail, Context, Result};

const MAGIC: &[u8; 4] = b"PAR1";

/// How much of the file is read at once.
const CHUNK: u64 = 1 << 20;

/// A footer: its length in four bytes, and the magic number.
const TRAILER: u64 = 8;

/// The lengths that the file may have had when it was whole, longest first: up to the end of each
/// magic number in it. Most are none; the caller tries.
pub(crate) fn ends(file: &File, path: &Path) -> Result<Vec<u64>> {
    let length = file.metadata()?.len();
    let mut begin = [0u8; 4];
    if length >= 4 {
        file.read_exact_at(&mut begin, 0)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    if &begin != MAGIC {
        bail!("{} is not a Parquet file", path.display());
    }
    let mut ends = Vec::new();
    let mut to = length;
    while to > TRAILER {
        let from = to.saturating_sub(CHUNK);
        // A magic number may lie across the border.
        let until = (to + 3).min(length);
        let mut bytes = vec![0u8; (until - from) as usize];
        file.read_exact_at(&mut bytes, from)
            .with_context(|| format!("cannot read {}", path.display()))?;
        for at in (0..bytes.len().saturating_sub(3)).rev() {
            let end = from + at as u64 + 4;
            if &bytes[at..at + 4] == MAGIC && end > 4 + TRAILER && may_be_end(file, end)? {
                ends.push(end);
            }
        }
        to = from;
    }
    ends.dedup();
    Ok(ends)
}

/// Whether the length before the magic number fits into the file.
fn may_be_end(file: &File, end: u64) -> Result<bool> {
    let mut length = [0u8; 4];
    file.read_exact_at(&mut length, end - TRAILER)?;
    let length = u64::from(u32::from_le_bytes(length));
    Ok(length > 0 && length + TRAILER + 4 <= end)
}
