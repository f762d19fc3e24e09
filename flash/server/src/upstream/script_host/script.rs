// SPDX-License-Identifier: MIT OR Apache-2.0
//! The new process of a script, until the script's program takes it over.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;
use nix::sys::signal::{sigprocmask, SigHandler, SigSet, SigmaskHow, Signal};
use nix::unistd::{chdir, dup2_stdin, dup2_stdout, execve, setsid};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};

use rustix::process::{set_parent_process_death_signal, Signal as DeathSignal};

use super::order::Order;

/// Without what the copied process would do at its end.
pub fn exit(has_failed: bool) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(i32::from(has_failed)) }
}

/// # Errors
///
/// Those of prctl.
pub fn dies_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(DeathSignal::KILL))?;
    Ok(())
}

/// Returns only if there is no script: the status for that.
pub fn become_script(order: &Order) -> u16 {
    match prepare(order) {
        Ok(()) => {}
        Err(_) => return 500,
    }
    let (script, name, path_info) = match find(order) {
        Ok(found) => found,
        Err(status) => return status,
    };
    let root = order.root.as_os_str().as_bytes();
    let below = &script.as_os_str().as_bytes()[root.len().min(script.as_os_str().len())..];
    let own = [
        (b"SCRIPT_NAME=".as_slice(), name.as_slice()),
        (b"PATH_INFO=", path_info.as_slice()),
        (b"DOCUMENT_URI=", &[name.as_slice(), &path_info].concat()),
        (b"SCRIPT_FILENAME=", &[root, below].concat()),
        (b"DOCUMENT_ROOT=", root),
        (
            b"PATH=",
            &std::env::var_os("PATH")
                .unwrap_or("/usr/bin:/bin".into())
                .into_encoded_bytes(),
        ),
    ];
    let is_own = |variable: &&Vec<u8>| own.iter().any(|(name, _)| variable.starts_with(name));
    let others = order
        .variables
        .iter()
        .filter(|variable| !is_own(variable))
        .cloned();
    let mut all: Vec<Vec<u8>> = own
        .iter()
        .map(|(name, value)| [*name, *value].concat())
        .collect();
    if !path_info.is_empty() {
        all.push([b"PATH_TRANSLATED=", root, &path_info].concat());
    }
    all.extend(others);
    let variables: Vec<CString> = all.into_iter().flat_map(CString::new).collect();
    let Ok(path) = CString::new(script.as_os_str().as_bytes()) else {
        return 404;
    };
    if let Some(directory) = script.parent() {
        let _ = chdir(directory);
    }
    match execve(&path, &[&path], &variables) {
        Err(nix::errno::Errno::EACCES) => 403,
        _ => 500,
    }
}

/// Makes the process a script's: with its own group, streams and signals.
fn prepare(order: &Order) -> Result<()> {
    setsid()?;
    dies_with_parent()?;
    for file in [&order.input, &order.output] {
        let flags = fcntl_getfl(file)?;
        fcntl_setfl(file, flags - OFlags::NONBLOCK)?;
    }
    dup2_stdin(&order.input)?;
    dup2_stdout(&order.output)?;
    // SAFETY: the default is no function of this program.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// The first file on the path: its place, its name in URLs, and what of the path is behind it.
fn find(order: &Order) -> Result<(PathBuf, Vec<u8>, Vec<u8>), u16> {
    let mut place = order.root.clone();
    let mut name = order.location.clone();
    let mut rest = order.path.as_slice();
    while let Some(after) = rest.strip_prefix(b"/") {
        let end = after
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(after.len());
        let (segment, behind) = after.split_at(end);
        if segment.is_empty() || segment.starts_with(b".") {
            return Err(404);
        }
        place.push(OsStr::from_bytes(segment));
        name.extend_from_slice(&[b"/", segment].concat());
        rest = behind;
        match place.metadata() {
            Ok(status) if status.is_file() => return Ok((place, name, rest.to_vec())),
            Ok(status) if status.is_dir() => {}
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(403),
            _ => return Err(404),
        }
    }
    Err(404)
}
