//! Finds the last footer of a file that was cut off while a group was being written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{bail, Context, Result};
use memchr::memmem;

const MAGIC: &[u8; 4] = b"PAR1";

/// How much of the file is read at once.
const CHUNK: u64 = 1 << 20;

/// A footer: its length in four bytes, and the magic number.
const TRAILER: u64 = 8;

/// The lengths that the file may have had when it was complete, longest first: each ends with a
/// magic number in the file. Most of them are wrong; the caller tries them. The first length of a
/// complete file is its own; then the rest is not searched.
pub(crate) fn ends<'a>(file: &'a File, path: &'a Path) -> Result<Ends<'a>> {
    let length = file.metadata()?.len();
    let mut begin = [0u8; 4];
    if length >= 4 {
        file.read_exact_at(&mut begin, 0)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    if &begin != MAGIC {
        bail!("{} is not a Parquet file", path.display());
    }
    Ok(Ends {
        file,
        path,
        length,
        to: length,
        found: Vec::new(),
        last: None,
    })
}

/// See [`ends`].
pub(crate) struct Ends<'a> {
    file: &'a File,
    path: &'a Path,
    length: u64,
    /// The part of the file after this has been searched.
    to: u64,
    /// Lengths found in the part that was searched last; the longest at the end.
    found: Vec<u64>,
    /// The length that was returned last.
    last: Option<u64>,
}

impl Iterator for Ends<'_> {
    type Item = Result<u64>;

    fn next(&mut self) -> Option<Result<u64>> {
        loop {
            match self.found.pop() {
                // A number across the border is in both parts.
                Some(end) if self.last == Some(end) => {}
                Some(end) => {
                    self.last = Some(end);
                    return Some(Ok(end));
                }
                None if self.to <= TRAILER => return None,
                None => {
                    if let Err(error) = self.look() {
                        self.to = 0;
                        let path = self.path.display();
                        return Some(Err(error.context(format!("cannot read {path}"))));
                    }
                }
            }
        }
    }
}

impl Ends<'_> {
    fn look(&mut self) -> Result<()> {
        let from = self.to.saturating_sub(CHUNK);
        // A magic number may lie across the border.
        let until = (self.to + 3).min(self.length);
        let mut bytes = vec![0u8; (until - from) as usize];
        self.file.read_exact_at(&mut bytes, from)?;
        for at in memmem::find_iter(&bytes, MAGIC) {
            let end = from + at as u64 + 4;
            if end > 4 + TRAILER && may_be_end(self.file, end)? {
                self.found.push(end);
            }
        }
        self.to = from;
        Ok(())
    }
}

/// Whether the length before the magic number fits into the file.
fn may_be_end(file: &File, end: u64) -> Result<bool> {
    let mut length = [0u8; 4];
    file.read_exact_at(&mut length, end - TRAILER)?;
    let length = u64::from(u32::from_le_bytes(length));
    Ok(length > 0 && length + TRAILER + 4 <= end)
}
