//! Finds the process that listens on a port, using /proc.

use procfs::net::{tcp, tcp6, TcpState};

/// Name and number of a process that listens on this port and is not in the process group. `None` if no
/// such process is visible.
pub fn of_others(port: u16, group: u32) -> Option<String> {
    let sockets = listening(port);
    let holders: Vec<(u32, String, i32)> = kit_proc::pids()
        .filter(|pid| {
            let open = kit_proc::sockets(*pid);
            open.iter().any(|inode| sockets.contains(inode))
        })
        .filter_map(|pid| {
            let stat = kit_proc::stat(pid)?;
            Some((pid, stat.comm, stat.pgrp))
        })
        .collect();
    // Workers inherit the socket; the process that opened it may have ended.
    if (holders.iter()).any(|(_, _, its)| i64::from(*its) == i64::from(group)) {
        return None;
    }
    let (pid, name, _) = holders.first()?;
    Some(format!("{name} (process {pid})"))
}

/// Inodes of the sockets that listen on a port.
fn listening(port: u16) -> Vec<u64> {
    let tables = [tcp(), tcp6()].into_iter().flatten().flatten();
    tables
        .filter(|entry| entry.state == TcpState::Listen && entry.local_address.port() == port)
        .map(|entry| entry.inode)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_is_found_with_its_group() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = kit_proc::stat(std::process::id()).unwrap().pgrp as u32;
        assert_eq!(of_others(port, own), None);
        let other = of_others(port, own.wrapping_add(1)).unwrap();
        assert!(
            other.contains(&format!("(process {})", std::process::id())),
            "{other}"
        );
        drop(listener);
        assert_eq!(of_others(port, own.wrapping_add(1)), None);
    }
}
