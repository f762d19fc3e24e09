// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documents on standard output, as text or JSON.

use std::io::Write;

use anyhow::Result;
use kit_console::Allowed;
use serde::Serialize;

use crate::options::Format;

/// Columns of a table where there is no terminal.
const WIDTH: usize = 110;

/// Prints a document as JSON, or as text.
///
/// # Errors
///
/// It cannot be written.
pub fn print(
    value: &impl Serialize,
    format: Format,
    write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
) -> Result<()> {
    let mut printed = Vec::new();
    let allowed = match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut printed, value)?;
            printed.push(b'\n');
            Allowed::Json
        }
        Format::Text => {
            write(&mut printed)?;
            Allowed::Text
        }
    };
    kit_console::print(allowed, |out| out.write_all(&printed))?;
    Ok(())
}

/// Of the terminal, or of a table where there is none.
pub fn width() -> usize {
    // SAFETY: all fields may be zero, and the kernel writes no more than a winsize.
    let (got, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (
            libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size),
            size,
        )
    };
    match got == 0 && size.ws_col > 0 {
        true => usize::from(size.ws_col),
        false => WIDTH,
    }
}
