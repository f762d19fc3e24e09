// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may ask: processes that could open the same files themselves.
//!
//! The path server opens files with its own rights. So a client has to have at least these: the same user and all of
//! the groups, or root. The path server itself never has capabilities, so being root is not more than owning files.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{ensure, Context, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};

/// More groups than that are refused.
const MAX_GROUPS: usize = 1024;

/// The rights of a process, as far as files without capabilities go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    user: u32,
    groups: Vec<u32>,
}

impl Rights {
    /// # Errors
    ///
    /// The kernel does not tell the groups.
    pub fn own() -> Result<Rights> {
        let mut groups: Vec<u32> = getgroups()?.iter().map(|group| group.as_raw()).collect();
        groups.push(getegid().as_raw());
        Ok(Rights {
            user: geteuid().as_raw(),
            groups,
        })
    }

    fn of_peer(socket: BorrowedFd<'_>) -> io::Result<Rights> {
        let peer = socket_peercred(socket)?;
        let mut groups = peer_groups(socket)?;
        groups.push(peer.gid.as_raw());
        Ok(Rights {
            user: peer.uid.as_raw(),
            groups,
        })
    }

    /// Whether `peer` could do all that a process with these rights can.
    fn are_held_by(&self, peer: &Rights) -> bool {
        let has_groups = || self.groups.iter().all(|group| peer.groups.contains(group));
        peer.user == 0 || (peer.user == self.user && has_groups())
    }

    /// Whether the process at the other end of a socket may be answered.
    pub fn admit(&self, socket: impl AsFd) -> bool {
        Rights::of_peer(socket.as_fd()).is_ok_and(|peer| self.are_held_by(&peer))
    }
}

fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; MAX_GROUPS];
    let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `groups`, and then their number into `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(length as usize / size_of::<u32>());
    Ok(groups)
}

/// Gives up all capabilities, so that the process opens no more than any process of its user can. Call it before threads
/// start.
///
/// # Errors
///
/// Some are left.
pub fn drop_capabilities() -> Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context("cannot give up capabilities")?;
    let left = capabilities(None).context("cannot read the capabilities")?;
    ensure!(
        left.effective.is_empty() && left.permitted.is_empty(),
        "the process has given up its capabilities and still has some"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn rights(user: u32, groups: &[u32]) -> Rights {
        Rights {
            user,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn a_peer_has_to_have_at_least_the_same_rights() {
        let own = rights(33, &[33, 100]);
        assert!(own.are_held_by(&rights(33, &[100, 33])));
        assert!(own.are_held_by(&rights(33, &[1, 100, 33])));
        assert!(own.are_held_by(&rights(0, &[])));
        assert!(!own.are_held_by(&rights(33, &[33])));
        assert!(!own.are_held_by(&rights(34, &[33, 100])));
        let root = rights(0, &[0]);
        assert!(root.are_held_by(&rights(0, &[])));
        assert!(!root.are_held_by(&rights(33, &[0])));
    }

    #[test]
    fn the_kernel_tells_the_rights_of_a_peer() {
        let (one, _other) = UnixStream::pair().expect("descriptors");
        let own = Rights::own().expect("groups");
        let peer = Rights::of_peer(one.as_fd()).expect("they are told");
        assert_eq!(peer.user, own.user);
        assert!(own.groups.iter().all(|group| peer.groups.contains(group)));
        assert!(own.admit(&one));
    }
}
