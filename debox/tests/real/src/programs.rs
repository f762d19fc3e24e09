// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of a corpus that have to be compiled.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use debox_tests::Scratch;

use crate::require;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    /// With this library, by its name for `pkg-config`.
    CWith(&'static str),
    Go,
}

/// The compiled programs, in a directory that goes with this.
#[derive(Debug, Default)]
pub struct Programs {
    scratch: Scratch,
}

impl Programs {
    /// The program of this source, compiled if it was not.
    pub fn built(&self, source: &Path, language: Language) -> Result<PathBuf, String> {
        let name = source.file_name().expect("a file has a name");
        let directory = self.scratch.file(&name.to_string_lossy());
        let program = directory.join(source.file_stem().expect("a file has a name"));
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let mut command = match language {
            Language::C | Language::CWith(_) => {
                let mut command = Command::new("cc");
                command.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g"]);
                command.args(["-Wall", "-Wextra", "-pthread"]);
                command
            }
            Language::Go => {
                let mut command = Command::new(require("go"));
                command
                    .arg("build")
                    .env("GOCACHE", self.scratch.file("cache"));
                command.envs([
                    ("CGO_ENABLED", "0"),
                    ("GOFLAGS", ""),
                    ("GOTOOLCHAIN", "local"),
                ]);
                command
            }
        };
        command.arg("-o").arg(&program).arg(source);
        if let Language::CWith(library) = language {
            let mut asked = Command::new(require("pkg-config"));
            let said = done(asked.args(["--cflags", "--libs", library]))?;
            command.args(said.split_whitespace());
        }
        done(&mut command)?;
        Ok(program)
    }
}

/// Runs a command to its end; what it said on standard output. `Err` has what it said on standard error.
pub fn done(command: &mut Command) -> Result<String, String> {
    // cargo's own, in which every program's loader would look first
    let output = command
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {}\n{said}", output.status))
        }
    }
}
