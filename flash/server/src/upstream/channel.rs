// SPDX-License-Identifier: MIT OR Apache-2.0
//! How bytes go to an upstream and come from it: a socket, or the pipes of a script. No call waits.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{readv, Errno};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{
    connect, ipproto, recv, socket_with, AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::scripts::{ENDED, LATE};
use super::Endpoint;

pub(super) enum Channel {
    Socket(OwnedFd),
    Script(Running),
}

pub(super) struct Running {
    pub(super) output: OwnedFd,
    /// Until the whole request has been sent.
    pub(super) input: Option<OwnedFd>,
    pub(super) life: OwnedFd,
    /// How it has ended; zero: without the host having said it.
    pub(super) end: Option<u8>,
}

impl Channel {
    pub(super) fn files(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Channel::Socket(socket) => vec![socket.as_fd()],
            Channel::Script(script) => {
                let ends = [
                    Some(&script.output),
                    script.input.as_ref(),
                    Some(&script.life),
                ];
                ends.into_iter().flatten().map(AsFd::as_fd).collect()
            }
        }
    }
}

impl Running {
    /// The end of the output is the end of the answer only if the script ended by itself.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let read = readv(&self.output, &mut [IoSliceMut::new(into)]);
        if !matches!(read, Ok(0) | Err(Errno::AGAIN)) {
            return read;
        }
        if self.end.is_none() {
            let mut byte = [0];
            match recv(&self.life, &mut byte, RecvFlags::empty()) {
                Ok((1, _)) => self.end = Some(byte[0]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                _ => self.end = Some(0),
            }
        }
        match (self.end, read) {
            (Some(LATE), _) => Err(Errno::TIMEDOUT),
            (Some(ENDED), Ok(0)) => Ok(0),
            (None, Ok(0)) => Err(Errno::AGAIN),
            (Some(_), Ok(0)) => Err(Errno::CONNRESET),
            (_, read) => read,
        }
    }
}

/// Begins to connect. The second: it is connected already.
pub(super) fn open(endpoint: &Endpoint) -> Result<(OwnedFd, bool), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::STREAM;
    let (socket, begun) = match endpoint {
        Endpoint::Tcp(address) => {
            let family = match address.is_ipv4() {
                true => AddressFamily::INET,
                false => AddressFamily::INET6,
            };
            let socket = socket_with(family, kind, flags, Some(ipproto::TCP))?;
            set_tcp_nodelay(&socket, true)?;
            let begun = connect(&socket, address);
            (socket, begun)
        }
        // It has nothing to connect to.
        Endpoint::Script | Endpoint::Application => return Err(Errno::INVAL),
        Endpoint::Unix(path) => {
            let address = SocketAddrUnix::new(path.as_path())?;
            let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
            let begun = connect(&socket, &address);
            (socket, begun)
        }
    };
    match begun {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}
