//! Detects processes with listening sockets: servers wait for others' requests.

use std::collections::HashSet;

use procfs::net::{TcpState, UnixState};
use procfs::process::{FDTarget, Process};

/// The most processes and descriptors that are examined. This is done once, when a report is made.
const PROCESSES: usize = 64;
const DESCRIPTORS: usize = 4096;

/// Whether one of these processes has a listening TCP or Unix socket. Processes that cannot be inspected are
/// ignored.
pub(crate) fn any(pids: impl IntoIterator<Item = u32>) -> bool {
    let mut pids = pids.into_iter().take(PROCESSES);
    pids.any(|pid| listens(pid as i32).unwrap_or(false))
}

fn listens(pid: i32) -> procfs::ProcResult<bool> {
    let process = Process::new(pid)?;
    let descriptors = process.fd()?.take(DESCRIPTORS).filter_map(Result::ok);
    let sockets: HashSet<u64> = descriptors
        .filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    if sockets.is_empty() {
        return Ok(false);
    }
    // Sockets of the process's network namespace.
    let tcp = [process.tcp(), process.tcp6()];
    let mut tcp = tcp.into_iter().flatten().flatten();
    if tcp.any(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode)) {
        return Ok(true);
    }
    // The list does not show whether a Unix socket listens: one with an address and without a peer does.
    let mut unix = process.unix().into_iter().flatten();
    Ok(unix.any(|entry| {
        let is_stream =
            [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].contains(&entry.socket_type.into());
        is_stream
            && entry.state == UnixState::UNCONNECTED
            && entry.path.is_some()
            && sockets.contains(&entry.inode)
    }))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn this_process_listens_or_does_not() {
        // Other tests of this process may have sockets, but none that listens.
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(any([own]));
        drop(tcp);
        let place = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(place.path().join("ear")).unwrap();
        assert!(any([own]));
        drop(unix);
        assert!(!any([u32::MAX / 2]));
    }
}
