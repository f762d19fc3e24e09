// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many descriptors there can be, and room for them.

use rustix::event::{eventfd, EventfdFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Open files that are no connection's: listening sockets, logs, what helpers have at hand.
const OTHER_FILES: usize = 256;
/// Descriptors that there is room for from the start, 8 bytes each.
const WIDEST: usize = 1 << 18;

/// Has the kernel make its table of descriptors large enough for a server. A table that threads share grows only when
/// no processor uses the old one any more. The thread whose descriptor found no place waits for that, some milliseconds,
/// and it may be a loop. `open_files`: that are no connection's.
pub fn make_room(connections: usize, open_files: usize) {
    let files = connections * 2 + open_files + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let last = files.min(WIDEST).min(limit).saturating_sub(1);
    let last = i32::try_from(last).unwrap_or(i32::MAX);
    if let Ok(file) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&file, last);
    }
}

/// Raises the limit of open files as far as it goes, and returns how many connections it leaves room for: each may have
/// a file open.
pub fn room_for_connections() -> usize {
    let resource = Resource::Nofile;
    let limit = getrlimit(resource);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(resource, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let files = current.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    });
    (files.saturating_sub(OTHER_FILES) / 2).max(1)
}
