// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are only monitored if they are named by their ids: a debox that monitors itself, or the broker
//! that serves it, would see its own work.

use std::fs;

/// Whether this is the process that asks.
pub(crate) fn is_own(pid: u32) -> bool {
    pid == std::process::id()
}

/// Whether a process is this one, or a broker.
pub(crate) fn is_spared(pid: u32) -> bool {
    is_own(pid) || is_broker(pid)
}

/// A broker runs the same program, or one of the same name, as root.
fn is_broker(pid: u32) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    if program.file_name().is_none_or(|name| name != "debox") {
        return false;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"broker")
}
