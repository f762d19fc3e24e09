//! The process at the other end of a connection.
//!
//! The kernel names the process that connected by its id, which can belong to another process by the time it is
//! looked up. So the broker opens a descriptor of the process and then sends it a nonce, which the process has to
//! return. The sender of the nonce had that process id at that time; since the process of the descriptor was alive
//! from before until after, it is the sender.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use kit_proc::pidfd;
use nix::sys::socket::{self, sockopt};

/// A process that connected, held by a descriptor.
pub struct Peer {
    pub pid: u32,
    /// Its effective user when it connected.
    pub uid: u32,
    /// Its effective group at that time.
    pub gid: u32,
    process: OwnedFd,
}

impl Peer {
    pub fn of(connection: BorrowedFd) -> io::Result<Peer> {
        let who = socket::getsockopt(&connection, sockopt::PeerCredentials)?;
        let pid = who.pid();
        if pid <= 0 {
            return Err(io::ErrorKind::NotFound.into()); // it is in a PID namespace that is not below ours
        }
        // If the kernel knows the process but cannot return a descriptor, it has ended: its id may be another's by
        // now.
        let process = match peer_process(connection) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                pidfd::open(pid as u32)
            }
            known => known,
        }?;
        Ok(Peer {
            pid: pid as u32,
            uid: who.uid(),
            gid: who.gid(),
            process,
        })
    }

    /// A process, as if it had connected with this user and group.
    #[cfg(test)]
    pub fn with(pid: u32, uid: u32, gid: u32) -> Peer {
        Peer {
            pid,
            uid,
            gid,
            process: pidfd::open(pid).expect("it lives"),
        }
    }

    /// Whether a message came from this process and the process is alive.
    pub fn has_sent(&self, sender: Option<(i32, u32)>) -> bool {
        sender == Some((self.pid as i32, self.uid)) && self.is_alive()
    }

    pub fn is_alive(&self) -> bool {
        !pidfd::ends_within(self.process.as_fd(), Duration::ZERO)
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

/// The descriptor of the process that connected, from Linux 6.5 on.
fn peer_process(connection: BorrowedFd) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    let mut fd: i32 = -1;
    let mut size = std::mem::size_of_val(&fd) as libc::socklen_t;
    // SAFETY: `fd` and `size` are valid for writing, and `size` is the size of `fd`.
    let failed = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &mut size,
        )
    };
    if failed != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_ended_has_sent_nothing() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let peer = Peer::with(child.id(), 5, 5);
        let sender = Some((child.id() as i32, 5));
        assert!(peer.has_sent(sender));
        assert!(!peer.has_sent(Some((child.id() as i32, 6))));
        assert!(!peer.has_sent(Some((child.id() as i32 + 1, 5))));
        assert!(!peer.has_sent(None));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!peer.has_sent(sender));
    }
}
