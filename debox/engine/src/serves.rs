// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom a thread serves that waits for events: reads from outside which sockets it waits for.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use kit_proc::pidfd;

use crate::loops::Serves;
use crate::waited::{watched, Waited};

/// The events of an epoll instance of a process. `None`: they cannot be read.
pub fn at_instance(pid: u32, instance: u32) -> Option<Serves> {
    let descriptors = watched(pid, i32::try_from(instance).ok()?)?;
    of_descriptors(pid, &descriptors)
}

/// The events that a thread waits for now, in any call. `None`: it waits for none.
pub fn of_thread(tid: u32) -> Option<Serves> {
    let waited = Waited::of(tid)?;
    of_descriptors(waited.pid, &waited.descriptors)
}

fn of_descriptors(pid: u32, descriptors: &[i32]) -> Option<Serves> {
    let sockets = descriptors.iter().filter(|fd| is_socket(pid, **fd));
    let mut process = None;
    let mut connections = 0;
    for fd in sockets {
        if process.is_none() {
            process = Some(pidfd::open(pid).ok()?);
        }
        match process.as_ref().and_then(|process| kind_of(process, *fd)) {
            Some(Kind::Listener) => return Some(Serves::Several),
            Some(Kind::Connection) => connections += 1,
            Some(Kind::Own) | None => {}
        }
        if connections > 1 {
            return Some(Serves::Several);
        }
    }
    Some(Serves::of(false, connections))
}

fn is_socket(pid: u32, fd: i32) -> bool {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
}

enum Kind {
    /// Anybody may come: it accepts connections, or takes datagrams.
    Listener,
    Connection,
    /// What a program wakes itself with: one of a pair of sockets without names.
    Own,
}

/// What a socket of a process is. It is looked at through a duplicate, which is closed at once.
fn kind_of(process: &OwnedFd, fd: i32) -> Option<Kind> {
    // SAFETY: takes three numbers.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    if own < 0 {
        return None;
    }
    // SAFETY: the descriptor is new.
    let socket = unsafe { OwnedFd::from_raw_fd(own as i32) };
    if option(&socket, libc::SO_ACCEPTCONN)? != 0 {
        return Some(Kind::Listener);
    }
    let peer = address(&socket, libc::getpeername);
    let takes_datagrams = option(&socket, libc::SO_TYPE)? == libc::SOCK_DGRAM && peer.is_none();
    match option(&socket, libc::SO_DOMAIN)? {
        libc::AF_INET | libc::AF_INET6 if takes_datagrams => Some(Kind::Listener),
        libc::AF_INET | libc::AF_INET6 | libc::AF_VSOCK => Some(Kind::Connection),
        libc::AF_UNIX => {
            let is_named = |length: Option<usize>| length.is_some_and(|length| length > 2);
            let names = [peer, address(&socket, libc::getsockname)];
            Some(match names.into_iter().any(is_named) {
                true => Kind::Connection,
                false => Kind::Own,
            })
        }
        _ => Some(Kind::Own),
    }
}

fn option(socket: &OwnedFd, name: i32) -> Option<i32> {
    let mut value: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: `value` has the length that is given, and lives during the call.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &mut length) };
    (failed == 0).then_some(value)
}

type Names = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

/// The length of an address; a Unix socket without a name has 2 bytes.
fn address(socket: &OwnedFd, of: Names) -> Option<usize> {
    // SAFETY: an address of zeros is a valid value.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the address has the length that is given, and lives during the call.
    let failed = unsafe { of(socket.as_raw_fd(), (&raw mut address).cast(), &mut length) };
    (failed == 0).then_some(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn of(sockets: &[&dyn AsRawFd]) -> Option<Serves> {
        let descriptors: Vec<i32> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
        of_descriptors(std::process::id(), &descriptors)
    }

    #[test]
    fn sockets_say_whom_a_thread_serves() {
        let (waker, woken) = UnixStream::pair().unwrap();
        let pipe = fs::File::open("/dev/null").unwrap();
        assert_eq!(of(&[&pipe, &waker, &woken]), Some(Serves::NoClient));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(of(&[&waker, &server]), Some(Serves::One));
        assert_eq!(of(&[&client, &server]), Some(Serves::Several));
        assert_eq!(of(&[&listener]), Some(Serves::Several));
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(of(&[&datagrams]), Some(Serves::Several));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(of(&[&waker, &server]), Some(Serves::One));
        assert_eq!(of(&[&client, &server]), Some(Serves::Several));
        assert_eq!(of(&[&pipe, &listener]), Some(Serves::Several));
    }
}
