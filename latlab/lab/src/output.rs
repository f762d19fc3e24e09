//! What the subcommands print to standard output.

use std::io::{self, Write};

use anyhow::Result;
use kit_console::{printable, Allowed, StandardOutput};
use serde::Serialize;

/// A result for a machine.
pub fn json(result: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(result)?;
    kit_console::print(Allowed::Json, |out| writeln!(out, "{text}"))?;
    Ok(())
}

/// All that `write` writes. What comes from outside in it is made printable there, field by field.
pub fn text(write: impl FnOnce(&mut StandardOutput) -> io::Result<()>) -> Result<()> {
    kit_console::print(Allowed::Text, write)?;
    Ok(())
}

/// One line.
pub fn line(line: &str) -> Result<()> {
    text(|out| writeln!(out, "{}", printable(line)))
}
