// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that says hello, linked statically and dynamically.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::benchmark::{Available, Failure};
use crate::sys::Program;

const STATIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hello-static"));
const DYNAMIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hello-dynamic"));
/// Its exit status, if it ran to its end.
const STATUS: i32 = 7;

/// Writes the programs, for all samples of a run.
pub fn write(directory: &Path) -> std::io::Result<()> {
    for (kind, bytes) in [("static", STATIC), ("dynamic", DYNAMIC)] {
        let path = path(directory, kind);
        fs::write(&path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn path(directory: &Path, kind: &str) -> PathBuf {
    directory.join(format!("hello-{kind}"))
}

/// Where the run has written the programs: beside the sample's own directory.
fn written(directory: &Path, kind: &str) -> Result<PathBuf, Failure> {
    let path = path(directory.parent().unwrap_or(directory), kind);
    fs::metadata(&path).available("look at the program that says hello")?;
    Ok(path)
}

pub fn program(directory: &Path, kind: &str) -> Result<Program, Failure> {
    checked(Program::new(&written(directory, kind)?, &[], STATUS)?, kind)
}

/// `/bin/sh -c` with the program.
pub fn by_shell(directory: &Path, kind: &str) -> Result<Program, Failure> {
    let path = written(directory, kind)?;
    let path = path.to_string_lossy();
    let program = Program::new(Path::new("/bin/sh"), &["-c", &path], STATUS)?;
    checked(program, kind)
}

/// A file system without execution, or a machine without this C library, is no wrong result.
fn checked(program: Program, kind: &str) -> Result<Program, Failure> {
    match program.run() {
        Err(Failure::Wrong(reason)) => Err(Failure::Unavailable(format!(
            "the {kind} program that says hello cannot be executed in the directory for temporary files: {reason}"
        ))),
        Err(failure) => Err(failure),
        Ok(()) => Ok(program),
    }
}
