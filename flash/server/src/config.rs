// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file.

use std::path::Path;

use self::values::Wrong;
use crate::sites::VirtualHost;

mod access;
mod application;
mod auth;
mod check;
mod content;
mod file;
mod limits;
mod locations;
mod plans;
mod stages;
mod unix;
mod upstream;
mod values;

pub use file::Config;
pub use values::Time;

/// Bytes of a configuration file.
const MAX_SIZE: u64 = 4 << 20;

/// Reads and checks a file; opens nothing of what it names.
///
/// # Errors
///
/// What is wrong: file, line, column and remedy.
pub fn read(path: &Path) -> anyhow::Result<(Config, Vec<VirtualHost>)> {
    let name = path.display();
    let fails = |error| anyhow::anyhow!("cannot read {name}: {error}");
    let about = std::fs::metadata(path).map_err(fails)?;
    if !about.is_file() || about.len() > MAX_SIZE {
        anyhow::bail!(
            "{name} is no file of at most {}",
            kit_units::bytes(MAX_SIZE)
        );
    }
    let text = std::fs::read_to_string(path).map_err(fails)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    parse(&text, directory).map_err(|wrong| match wrong.at {
        Some(at) => {
            let (line, column) = place(&text, at.start);
            anyhow::anyhow!("{name}:{line}:{column}: {}", wrong.what)
        }
        None => anyhow::anyhow!("{name}: {}", wrong.what),
    })
}

/// `directory`: where relative paths begin.
fn parse(text: &str, directory: &Path) -> Result<(Config, Vec<VirtualHost>), Wrong> {
    let config: Config = toml::from_str(text).map_err(|error| Wrong {
        at: error.span(),
        what: with_nearest(error.message()),
    })?;
    config.limits.check()?;
    let hosts = check::hosts(&config.servers, directory)?;
    Ok((config, hosts))
}

/// Line and column, both from 1; columns are characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Names the setting that an unknown one may stand for.
fn with_nearest(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.trim_end().replace('\n', ", ");
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let distance = |name: &&&str| strsim::damerau_levenshtein(unknown, name);
    match known.iter().min_by_key(distance) {
        Some(name) if distance(&name) <= 1 + unknown.len() / 3 => {
            format!("there is no setting `{unknown}` here; did you mean `{name}`?")
        }
        _ => {
            let known = known.join(", ");
            format!("there is no setting `{unknown}` here; there are: {known}")
        }
    }
}

#[cfg(test)]
mod tests;
