// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is installed in a guest that boots with systemd, and running it.

use std::process::{Command, Output};

use anyhow::{ensure, Context, Result};

/// The PREFIX for `make install`.
pub const PREFIX: &str = "/opt/debox";

/// What it printed.
pub fn text(done: &Output) -> String {
    let all = [&done.stdout[..], &done.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// The command's output; an error if it fails.
pub fn run(command: &mut Command) -> Result<String> {
    let done = command.output().context("it does not start")?;
    ensure!(
        done.status.success(),
        "{command:?} ended with {}: {}",
        done.status,
        text(&done)
    );
    Ok(text(&done))
}
