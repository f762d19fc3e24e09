//! How a program finds the broker again: like `client.rs`, but without waiting and without allocating,
//! so that a thread that looks for its record can do it even in a signal handler.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{self, sockopt, AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr};

use super::channel::{self, Descriptors};
use super::protocol::{self, Admission, Request};
use super::trust;

/// Connects, if the listener is one that this process may trust: root or its own user.
pub(crate) fn connect(address: &UnixAddr) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    socket::connect(socket.as_raw_fd(), address)?;
    let broker = socket::getsockopt(&socket, sockopt::PeerCredentials)?.uid();
    if !address
        .path()
        .is_some_and(|path| trust::is_trusted(broker, path))
    {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(socket)
}

pub(crate) fn say(socket: &OwnedFd, request: &Request) -> io::Result<()> {
    let mut room = [0; 64];
    let packet = protocol::encode_in(request, &mut room).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    socket::send(socket.as_raw_fd(), packet, flags)?;
    Ok(())
}

/// The broker's answer. Waits for at most `patience`, then returns `WouldBlock`. A closed connection, a
/// refusal and an invalid answer are other errors.
pub(crate) fn hear(
    socket: &OwnedFd,
    patience: PollTimeout,
) -> io::Result<(Admission, Descriptors)> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    // The result does not matter: the next step shows it.
    let _ = poll(&mut polled, patience);
    let mut room = [0; 64];
    let flags = MsgFlags::MSG_DONTWAIT;
    let (length, descriptors, _) = channel::receive_in(socket.as_fd(), &mut room, flags)?;
    match protocol::decode(&room[..length]) {
        Some(admission) => Ok((admission, descriptors)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A descriptor in a program that may close it unknowingly and reuse its number: a reused number is
/// left alone.
pub(crate) struct Kept {
    fd: std::mem::ManuallyDrop<OwnedFd>,
    file: Option<(u64, u64)>,
}

impl Kept {
    pub fn new(fd: OwnedFd) -> Kept {
        Kept {
            file: file_of(&fd),
            fd: std::mem::ManuallyDrop::new(fd),
        }
    }

    /// The descriptor, if it still stands for the same file.
    pub fn get(&self) -> Option<&OwnedFd> {
        (self.file.is_some() && file_of(&self.fd) == self.file).then_some(&self.fd)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: it belongs to this value and is dropped once.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The identity of a socket.
fn file_of(fd: &OwnedFd) -> Option<(u64, u64)> {
    let status = nix::sys::stat::fstat(fd).ok()?;
    Some((status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SockFlag::SOCK_CLOEXEC;
        socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap()
    }

    #[test]
    fn no_answer_is_not_an_end() {
        let (client, broker) = pair();
        let version = protocol::VERSION;
        say(&client, &Request::Hello { version }).unwrap();
        let heard = |patience| hear(&client, PollTimeout::from(patience)).map(|(said, _)| said);
        assert_eq!(heard(1u8).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let nonce = 7;
        let welcome = protocol::encode(&protocol::Reply::Welcome { version, nonce });
        channel::send(broker.as_fd(), &welcome, &[], MsgFlags::empty()).unwrap();
        assert_eq!(heard(1).unwrap(), Admission::Welcome { version, nonce });
        let refusal = protocol::encode(&protocol::Reply::Refused("no".repeat(100)));
        channel::send(broker.as_fd(), &refusal, &[], MsgFlags::empty()).unwrap();
        assert_eq!(heard(1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(broker);
        // A process that another test starts at this time has it open until it executes its program.
        let is_over = |_| heard(10).unwrap_err().kind() != io::ErrorKind::WouldBlock;
        assert!((0..1000).any(is_over), "the end was not noticed");
    }

    #[test]
    fn what_came_in_its_place_is_left_alone() {
        let (one, other) = pair();
        let kept = Kept::new(one.try_clone().unwrap());
        let fd = kept.get().unwrap().as_raw_fd();
        // SAFETY: what a program does that closes descriptors it does not know.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert!(kept.get().is_none());
        drop(kept);
        // SAFETY: it is open, as the next line checks, and belongs to this test.
        let replaced = unsafe { OwnedFd::from_raw_fd(fd) };
        assert_eq!(file_of(&replaced), file_of(&other));
        drop(Kept::new(replaced));
        // SAFETY: fcntl checks whether it is open.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1);
    }
}
