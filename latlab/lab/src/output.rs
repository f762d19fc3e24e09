//! What the subcommands print to standard output.

use std::io::{self, Write};

use anyhow::Result;
use kit_console::{printable, Allowed, StandardOutput};
use serde::Serialize;

/// Prints a result as JSON.
pub fn json(result: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(result)?;
    kit_console::print(Allowed::Json, |out| writeln!(out, "{text}"))?;
    Ok(())
}

/// Prints what `write` writes. It must make each field from outside printable.
pub fn text(write: impl FnOnce(&mut StandardOutput) -> io::Result<()>) -> Result<()> {
    kit_console::print(Allowed::Text, write)?;
    Ok(())
}

/// Prints one line.
pub fn line(line: &str) -> Result<()> {
    text(|out| writeln!(out, "{}", printable(line)))
}

/// `None` if standard output is no terminal.
pub fn terminal_width() -> Option<usize> {
    kit_console::terminal_width(libc::STDOUT_FILENO)
}
