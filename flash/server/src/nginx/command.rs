// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash import-nginx`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use kit_console::{say, Allowed};
use kit_files::output::Output;
use kit_units::{count, counted};

use super::files;
use super::notes::{Kind, Notes};
use super::translate::{translate, Translation};
use crate::check;

/// Exit status if something is left out, or has to be mended.
pub const PARTLY: u8 = 2;

#[derive(Args)]
pub struct ImportOptions {
    /// nginx.conf, or the file of one site
    file: PathBuf,
    /// New configuration file; without it, the configuration is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Where relative roots begin [default: /usr/share/nginx for /etc/nginx, or the directory above conf/]
    #[arg(long, value_name = "DIRECTORY")]
    prefix: Option<PathBuf>,
}

/// The exit status.
///
/// # Errors
///
/// The configuration cannot be read or written, or has no server.
pub fn run(options: &ImportOptions) -> Result<u8> {
    let file = std::path::absolute(&options.file)?;
    let directory = directory_of(&file);
    let prefix = match &options.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => prefix_of(&directory),
    };
    let all = files::read(&file, &directory)?;
    let made = translate(&all, &directory, &prefix)
        .with_context(|| format!("{} was read", options.file.display()))?;
    let Some(output) = &options.output else {
        kit_console::print(Allowed::Text, |out| out.write_all(made.text.as_bytes()))?;
        for line in report(&made.notes) {
            say!("{line}");
        }
        return Ok(if made.notes.all.is_empty() { 0 } else { PARTLY });
    };
    write(output, &made)?;
    let checked = check::file(output);
    kit_console::print(Allowed::Text, |out| {
        let (servers, locations) = (made.servers as u64, made.locations as u64);
        let directives = counted(made.notes.total as u64, "directive");
        writeln!(
            out,
            "{}: {} with {}, from {directives}",
            output.display(),
            counted(servers, "server"),
            counted(locations, "location")
        )?;
        for line in report(&made.notes) {
            writeln!(out, "{line}")?;
        }
        match &checked {
            Ok(()) => writeln!(out, "{} passes `flash check`", output.display()),
            Err(error) => writeln!(out, "has to be mended before `flash run`: {error:#}"),
        }
    })?;
    let is_whole = made.notes.all.is_empty() && checked.is_ok();
    Ok(if is_whole { 0 } else { PARTLY })
}

fn write(output: &Path, made: &Translation) -> Result<()> {
    let name = || format!("cannot write {}", output.display());
    if output.exists() {
        anyhow::bail!(
            "{} is there already: remove it, or name another file",
            output.display()
        );
    }
    let new = Output::create(output)?;
    (&new).write_all(made.text.as_bytes()).with_context(name)?;
    new.commit_new()
}

fn report(notes: &Notes) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in Kind::ALL {
        let its: Vec<_> = notes.of(kind).collect();
        if its.is_empty() {
            continue;
        }
        lines.push(format!("{} ({}):", kind.title(), count(its.len() as u64)));
        for note in its {
            lines.push(format!("  {}: {}: {}", note.at, note.text, note.meaning));
        }
    }
    if !notes.unneeded.is_empty() {
        let names: Vec<&str> = notes.unneeded.keys().map(String::as_str).collect();
        lines.push(format!("nothing to do for: {}", names.join(", ")));
    }
    lines
}

/// Where relative names begin. Sites are in a directory of their own below it.
fn directory_of(file: &Path) -> PathBuf {
    let parent = file.parent().unwrap_or(Path::new("/"));
    let name = parent.file_name().and_then(|name| name.to_str());
    match (name, parent.parent()) {
        (Some("sites-available" | "sites-enabled" | "conf.d" | "vhosts.d"), Some(above)) => {
            above.to_path_buf()
        }
        _ => parent.to_path_buf(),
    }
}

fn prefix_of(directory: &Path) -> PathBuf {
    if directory == Path::new("/etc/nginx") {
        return PathBuf::from("/usr/share/nginx");
    }
    match (
        directory.file_name().and_then(|name| name.to_str()),
        directory.parent(),
    ) {
        (Some("conf"), Some(above)) => above.to_path_buf(),
        _ => directory.to_path_buf(),
    }
}
