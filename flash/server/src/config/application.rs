// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a location whose requests an application answers by writing to the client's socket.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;

use nix::unistd::User;
use serde::Deserialize;
use toml::Spanned;

use super::upstream::params;
use super::{Number, Part, Path, PathBuf, Server, Time, Wrong};
use crate::upstream::application::{Options, Source};
use crate::upstream::{Place, Plan, Protocol, Settings};

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
    processes: Option<Number<1, 256>>,
    queue: Option<Number<0, 65_536>>,
    wait: Option<Time>,
    time: Option<Time>,
    silence: Option<Time>,
    #[serde(default)]
    params: BTreeMap<String, String>,
}

/// `base`: where relative paths begin.
pub(super) fn plan(
    part: &Part,
    spanned: &Spanned<Application>,
    base: &Path,
) -> Result<Plan, Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    if let Some(limits) = &part.upstream {
        let what = "an `application` has its limits in its own table: remove `upstream`";
        return Err(Wrong::at(limits.span(), what));
    }
    let ms = |time: Option<Time>, usual| {
        time.map_or(usual, |time| {
            u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX / 2)
        })
    };
    let options = Options {
        location: part.path.get_ref().trim_matches('/').as_bytes().to_vec(),
        source: source(table, &span, base)?,
        processes: table.processes.map_or(PROCESSES, |number| number.0),
        queue: table.queue.map_or(QUEUE, |number| number.0),
        wait_ms: ms(table.wait, WAIT_MS),
        time_ms: ms(table.time, TIME_MS),
        silence_ms: ms(table.silence, SILENCE_MS),
        variables: params(&table.params, &span)?,
    };
    Ok(Plan {
        protocol: Protocol::Application(options),
        to: vec![Place::Application],
        settings: Settings::default(),
    })
}

/// What an application cannot have, as its processes write to the socket of the client.
pub(super) fn check(server: &Server, part: &Part) -> Result<(), Wrong> {
    let Some(application) = &part.application else {
        return Ok(());
    };
    if !server.tls.is_empty() {
        let what = "an `application` writes to the client's socket itself, and cannot encrypt: this server has `tls`. \
                    Give the location to a server without `tls`, or use `proxy` or `fastcgi`";
        return Err(Wrong::at(application.span(), what));
    }
    if server.rate.is_some() || part.rate.is_some() {
        let what = "an `application` writes to the client's socket itself, so flash cannot limit its `rate`: remove \
                    one of them";
        return Err(Wrong::at(application.span(), what));
    }
    Ok(())
}

fn source(table: &Application, span: &Range<usize>, base: &Path) -> Result<Source, Wrong> {
    let wrong = |what: &str| Err(Wrong::at(span.clone(), format!("`application`: {what}")));
    match (&table.command, &table.to) {
        (Some(_), Some(_)) => {
            wrong("`command` has flash start it, `to` is for one that runs already: remove one")
        }
        (None, None) => wrong(
            "it has no `command`, as [\"/usr/bin/python3\", \"app.py\"], and no `to`, as \"unix:/run/app.sock\": add one",
        ),
        (None, Some(to)) => {
            if table.directory.is_some() || !table.environment.is_empty() {
                return wrong("`directory` and `environment` are for a `command`: remove them");
            }
            let Some(path) = to.strip_prefix("unix:") else {
                return wrong("`to` is a Unix socket, as \"unix:/run/app.sock\"");
            };
            let path = match super::upstream::unix(path) {
                Ok(Place::Unix(path)) => path,
                Ok(_) => return wrong("`to` is a Unix socket, as \"unix:/run/app.sock\""),
                Err(why) => return wrong(&why),
            };
            let user = match &table.user {
                None => None,
                Some(name) => match User::from_name(name) {
                    Ok(Some(user)) => Some(user.uid.as_raw()),
                    _ => return wrong(&format!("there is no user {name}")),
                },
            };
            Ok(Source::Socket { path, user })
        }
        (Some(command), None) => {
            if table.user.is_some() {
                return wrong("`user` is who listens at `to`; a `command` runs as the user of flash: remove it");
            }
            let base = std::env::current_dir().map_or(base.to_path_buf(), |at| at.join(base));
            let directory = match &table.directory {
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
            let mut environment = table.environment.iter();
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
                environment: table.environment.clone().into_iter().collect(),
            })
        }
    }
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
