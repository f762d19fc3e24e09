// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a location whose requests an application answers by writing to the client's socket.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::User;
use serde::Deserialize;

use crate::upstream::application::{Options, Source};

const PROCESSES: usize = 4;
const QUEUE: usize = 64;
const WAIT_MS: u64 = 10_000;
const TIME_MS: u64 = 600_000;
const SILENCE_MS: u64 = 60_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Application {
    command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    to: Option<String>,
    user: Option<String>,
    processes: Option<u32>,
    queue: Option<u32>,
    wait: Option<String>,
    time: Option<String>,
    silence: Option<String>,
    #[serde(default)]
    pub(super) params: BTreeMap<String, String>,
}

impl Application {
    /// `location`: its path; `base`: where relative paths begin; `variables`: the valid ones of `params`.
    pub(super) fn options(
        &self,
        location: &str,
        base: &Path,
        variables: Vec<(String, String)>,
    ) -> Result<Options, String> {
        Ok(Options {
            location: location.trim_matches('/').as_bytes().to_vec(),
            source: self.source(base)?,
            processes: number("processes", self.processes, PROCESSES, 1..=256)?,
            queue: number("queue", self.queue, QUEUE, 0..=65_536)?,
            wait_ms: time("wait", self.wait.as_deref(), WAIT_MS)?,
            time_ms: time("time", self.time.as_deref(), TIME_MS)?,
            silence_ms: time("silence", self.silence.as_deref(), SILENCE_MS)?,
            variables,
        })
    }

    fn source(&self, base: &Path) -> Result<Source, String> {
        let wrong = |what: &str| Err(what.to_string());
        match (&self.command, &self.to) {
            (Some(_), Some(_)) => {
                wrong("`command` has flash start it, `to` is for one that runs already: remove one")
            }
            (None, None) => wrong(
                "it has no `command`, as [\"python3\", \"app.py\"], and no `to`, as \"unix:/run/app.sock\": \
                 add one",
            ),
            (None, Some(to)) => {
                if self.directory.is_some() || !self.environment.is_empty() {
                    return wrong("`directory` and `environment` are for a `command`: remove them");
                }
                let Some(path) = to.strip_prefix("unix:") else {
                    return wrong("`to` is a Unix socket, as \"unix:/run/app.sock\"");
                };
                // The kernel takes 108 bytes with a zero at the end.
                if !path.starts_with('/') || path.len() > 107 {
                    return wrong("`to` is `unix:` and an absolute path of at most 107 bytes");
                }
                let path = PathBuf::from(path);
                let user = match &self.user {
                    None => None,
                    Some(name) => match User::from_name(name) {
                        Ok(Some(user)) => Some(user.uid.as_raw()),
                        _ => return wrong(&format!("there is no user {name}")),
                    },
                };
                Ok(Source::Socket { path, user })
            }
            (Some(command), None) => {
                if self.user.is_some() {
                    return wrong(
                        "`user` is who listens at `to`; a `command` runs as the user of flash: remove it",
                    );
                }
                let base = std::env::current_dir().map_or(base.to_path_buf(), |at| at.join(base));
                let directory = match &self.directory {
                    Some(directory) => base.join(directory),
                    None => base.clone(),
                };
                if !directory.is_dir() {
                    return wrong(&format!("there is no directory {}", directory.display()));
                }
                let mut command = command.clone();
                let Some(program) = command.first_mut().filter(|name| !name.is_empty()) else {
                    return wrong("`command` is empty");
                };
                let Some(found) = program_at(program, &base) else {
                    return wrong(&format!(
                        "{program} is no program: install it, or write its path"
                    ));
                };
                *program = found;
                let is_wrong = |text: &String| text.contains('\0');
                let mut environment = self.environment.iter();
                if command.iter().any(is_wrong)
                    || environment.any(|(name, value)| {
                        name.is_empty() || name.contains(['=', '\0']) || is_wrong(value)
                    })
                {
                    return wrong("`command` and `environment` have no zero bytes, and names no `=`");
                }
                Ok(Source::Command {
                    command,
                    directory,
                    environment: self.environment.clone().into_iter().collect(),
                })
            }
        }
    }
}

fn number(
    name: &str,
    given: Option<u32>,
    usual: usize,
    range: RangeInclusive<u32>,
) -> Result<usize, String> {
    match given {
        None => Ok(usual),
        Some(number) if range.contains(&number) => Ok(number as usize),
        Some(_) => {
            let (least, most) = range.into_inner();
            Err(format!("`{name}` must be from {least} to {most}"))
        }
    }
}

fn time(name: &str, given: Option<&str>, usual: u64) -> Result<u64, String> {
    let Some(text) = given else {
        return Ok(usual);
    };
    let time = kit_units::parse_duration(text);
    let time = time.map_err(|why| format!("`{name}`: `{text}` is no time: {why}"))?;
    // No sum of times is too large for a number then.
    Ok(u64::try_from(time.as_millis()).map_or(u64::MAX / 4, |ms| ms.min(u64::MAX / 4)))
}

/// A name with a slash is a path, any other one is looked for where the shell does it.
fn program_at(name: &str, base: &Path) -> Option<String> {
    let is_program = |path: &PathBuf| {
        let about = path.metadata();
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let found = match name.contains('/') {
        true => Some(base.join(name)).filter(is_program),
        false => {
            let path = std::env::var_os("PATH").unwrap_or("/usr/bin:/bin".into());
            std::env::split_paths(&path)
                .map(|directory| directory.join(name))
                .find(is_program)
        }
    };
    found?.into_os_string().into_string().ok()
}
