//! Reads requests: the rows of `latlab`, and those of other tools.
//!
//! A file's first bytes determine its format. Every file is treated as hostile: an error in it is
//! reported with its position, and memory is bounded by [`REQUESTS_MAX`](crate::request::REQUESTS_MAX).

mod assembler;
mod columns;
mod delimited;
mod line;
mod lines;
mod oha;
mod options;
mod own;
mod quantity;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use kit_files::input;

use line::next_line;
pub use options::Options;
pub use quantity::{SizeUnit, TimeUnit};

use crate::request::Run;

/// Reads a file in any of the formats.
pub fn read(path: &Path, options: &Options) -> Result<Run> {
    let run = read_any(path, options).with_context(|| format!("cannot read {}", path.display()))?;
    if run.requests.is_empty() {
        let failed: u64 = run.failed.values().sum();
        if failed == 0 {
            bail!("{} has no requests", path.display());
        }
        let (reason, count) = run
            .failed
            .iter()
            .max_by_key(|(_, count)| **count)
            .map_or(("", 0), |(reason, count)| (reason.as_str(), *count));
        bail!(
            "none of the {failed} requests of {} was answered without an error ({count} times: {reason})",
            path.display()
        );
    }
    Ok(run)
}

fn read_any(path: &Path, options: &Options) -> Result<Run> {
    if path.is_dir() {
        bail!("it is a directory: name the files in it");
    }
    let file = input::open_stream(path).context("it cannot be opened")?;
    let mut input = BufReader::with_capacity(1 << 16, file);
    let mut head = [0u8; 512];
    let head = {
        let length = peek(&mut input, &mut head)?;
        &head[..length]
    };
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let whole: PathBuf = path.to_path_buf();
    if head.starts_with(b"PAR1") {
        own::read(path, options)
    } else if head.starts_with(b"SQLite format 3\0") {
        oha::read(path, options)
    } else if head.starts_with(b"\x1f\x8b") || head.starts_with(b"\x28\xb5\x2f\xfd") {
        bail!("it is compressed: give what `zcat` or `zstdcat` makes of it");
    } else if first.is_none() {
        bail!("it is empty");
    } else if head.contains(&0) || std::str::from_utf8(text).is_err_and(|e| e.error_len().is_some())
    {
        bail!(
            "it is neither Parquet of latlab, oha's SQLite, nor text: of vegeta, `vegeta encode` makes \
             JSON"
        );
    } else if first == Some(&b'{') {
        lines::read(whole, input, options)
    } else if first == Some(&b'[') {
        bail!("it is one JSON array: `jq -c '.[]'` makes one line of each request");
    } else {
        delimited::read(whole, input, options)
    }
}

/// Returns the first bytes without consuming them.
fn peek(input: &mut BufReader<File>, into: &mut [u8]) -> Result<usize> {
    let buffered = input.fill_buf().context("it cannot be read")?;
    let length = buffered.len().min(into.len());
    into[..length].copy_from_slice(&buffered[..length]);
    Ok(length)
}
