// SPDX-License-Identifier: MIT OR Apache-2.0
//! One program under the guard.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use debox_real::{done, require, Language, Programs};
use debox_tests::{debox_binary, require_root, Scratch};
use serde_json::Value;

use crate::corpus::{Case, Runtime};
use crate::nginx::Nginx;
use crate::PROGRAMS;

/// So long a program does what it does.
const SECONDS: &str = "0.5";
const SHORT: &str = "0.1";

/// What the guard said.
#[derive(Debug)]
pub struct Guarded {
    pub status: Option<i32>,
    pub result: Value,
}

impl Case {
    /// Guards the program. `Err` says why that could not be done.
    pub fn guard(&self, programs: &Programs) -> Result<Guarded, String> {
        require_root();
        let scratch = Scratch::new();
        let place = scratch.path();
        if self.is_honest() && self.runtime != Runtime::Nginx {
            // What is on disk alone, such as pages of an interpreter, is in memory then, and is not what the loop waits
            // for. Linux may have dropped them since another program of the corpus ran.
            let words = self.command(SHORT, place, programs)?;
            done(Command::new(&words[0]).args(&words[1..]))?;
        }
        let said = place.join("guard.json");
        let mut guard = Command::new(debox_binary());
        guard.args(["guard", "--format", "json", "-o"]).arg(&said);
        let nginx = match self.runtime {
            Runtime::Nginx => Some(Nginx::new(self.what, place)?),
            _ => None,
        };
        match &nginx {
            Some(nginx) => guard.args(["--for", "1s", "--"]).args(nginx.command()),
            None => guard
                .arg("--")
                .args(self.command(SECONDS, place, programs)?),
        };
        // cargo's own, in which every program's loader would look first
        guard.env_remove("LD_LIBRARY_PATH");
        guard.stdin(Stdio::null()).stdout(Stdio::null());
        let output = guard.stderr(Stdio::piped()).spawn().and_then(|guard| {
            if let Some(nginx) = nginx {
                nginx.load();
            }
            guard.wait_with_output()
        });
        let output = output.map_err(|error| format!("{guard:?}: {error}"))?;
        let result = std::fs::read(&said).map_err(|error| {
            let told = String::from_utf8_lossy(&output.stderr);
            format!("{guard:?}: {}: {error}\n{told}", output.status)
        })?;
        Ok(Guarded {
            status: output.status.code(),
            result: serde_json::from_slice(&result).map_err(|error| error.to_string())?,
        })
    }

    fn command(
        &self,
        seconds: &str,
        place: &Path,
        programs: &Programs,
    ) -> Result<Vec<OsString>, String> {
        let source = |name: &str| Path::new(PROGRAMS).join(name);
        let mut words: Vec<OsString> = match self.runtime {
            Runtime::Asyncio => vec![require("python3").into(), source("asyncio_loop.py").into()],
            Runtime::Libuv => vec![require("node").into(), source("libuv_loop.js").into()],
            Runtime::Go => vec![programs.built(&source("go_loop.go"), Language::Go)?.into()],
            Runtime::Tokio => vec![tokio_loop()?.into()],
            Runtime::Libevent => {
                let language = Language::CWith("libevent_pthreads");
                vec![programs.built(&source("libevent_loop.c"), language)?.into()]
            }
            Runtime::Nginx => Vec::new(),
        };
        words.extend([self.what.into(), seconds.into(), place.into()]);
        Ok(words)
    }

    /// Whether the guard was right.
    pub fn judge(&self, guarded: &Guarded) -> Result<(), String> {
        let Guarded { status, result } = guarded;
        let violations = result["violations"].as_array().map_or(&[][..], |all| all);
        let sentences = || {
            let texts = violations.iter().take(3).map(|one| {
                let frames = one["frames"].as_array().map_or(&[][..], |all| all);
                let frames: Vec<&str> = frames.iter().filter_map(Value::as_str).take(30).collect();
                format!(
                    "{} slept {} ns ({}), woken by {}: {}",
                    one["syscall"],
                    one["blocked_ns"],
                    one["label"],
                    one["waker"],
                    frames.join(" <- ")
                )
            });
            texts.collect::<Vec<String>>().join("\n")
        };
        if self.is_honest() {
            let is_right = *status == Some(0) && result["ok"] == true;
            return is_right.then_some(()).ok_or_else(|| {
                let doubts = &result["doubts"];
                format!("status {status:?}, doubts {doubts}, {}", sentences())
            });
        }
        let blocks = violations.iter().any(|one| {
            let call = one["syscall"].as_str().unwrap_or_default();
            self.blocks_in.contains(&call)
        });
        let is_right = *status == Some(3) && result["ok"] == false && blocks;
        is_right
            .then_some(())
            .ok_or_else(|| format!("status {status:?}, {}", sentences()))
    }
}

/// Cargo puts examples beside what it builds.
fn tokio_loop() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let places = own.ancestors().skip(1).take(2);
    let mut places = places.map(|place| place.join("examples/tokio_loop"));
    let found = places.find(|path| path.exists());
    found.ok_or_else(|| "tokio_loop is not built: cargo build --release --all-targets".to_string())
}
