// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets. Those of an address stay open as long as a configuration has the address: a listening socket that
//! is closed resets the connections that wait in its queue.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{bind, ipproto, listen, socket_with, AddressFamily, SocketFlags, SocketType};

/// Connections that wait to be accepted; the kernel's own limit is `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// An address that is listened at.
#[derive(Clone)]
pub struct Port {
    /// As in the configuration: port 0 is one that the kernel chooses.
    wanted: SocketAddr,
    pub address: SocketAddr,
    sockets: Vec<Arc<OwnedFd>>,
}

/// How many sockets an address has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One for all loops.
    One,
    /// So many, among which the kernel distributes the connections.
    Several(usize),
}

/// Takes the sockets of earlier addresses, and opens those that are missing.
///
/// # Errors
///
/// An address cannot be listened at; the error names it.
pub fn open(wanted: &[(SocketAddr, Sharing)], before: &[Port]) -> Result<Vec<Port>> {
    let mut free: Vec<&Port> = before.iter().collect();
    let mut ports = Vec::new();
    for (wanted, sharing) in wanted {
        let same = free.iter().position(|port| port.wanted == *wanted);
        ports.push(match same {
            Some(place) => free.remove(place).clone(),
            None => {
                // What this process listens at with another address of the same port does not take clients away.
                let is_ours = |port: &Port| port.address.port() == wanted.port();
                open_port(*wanted, *sharing, before.iter().any(is_ours))?
            }
        });
    }
    Ok(ports)
}

fn open_port(wanted: SocketAddr, sharing: Sharing, is_ours: bool) -> Result<Port> {
    let mut address = wanted;
    let mut sockets = Vec::new();
    match sharing {
        Sharing::One => sockets.push(Arc::new(listen_at(address, is_ours)?)),
        Sharing::Several(count) => {
            if !is_ours {
                // The loops share the port. Another server that shares its own would take a part of the clients.
                drop(listen_at(address, false)?);
            }
            for _ in 0..count {
                let socket = listen_at(address, true)?;
                address = local_address(&socket)?;
                sockets.push(Arc::new(socket));
            }
        }
    }
    Ok(Port {
        wanted,
        address: local_address(&sockets[0])?,
        sockets,
    })
}

impl Port {
    /// It has the same sockets.
    pub fn is_same(&self, other: &Port) -> bool {
        Arc::ptr_eq(&self.sockets[0], &other.sockets[0])
    }

    /// The sockets of each loop. Each socket has a loop, and each loop a socket, whichever are more.
    pub fn of_loops(&self, loops: usize) -> impl Iterator<Item = (usize, Arc<OwnedFd>)> + '_ {
        let sockets = self.sockets.len();
        let pair = move |at: usize| (at % loops, Arc::clone(&self.sockets[at % sockets]));
        (0..loops.max(sockets)).map(pair)
    }
}

/// `is_shared`: by several sockets, among which the kernel distributes the connections.
fn listen_at(address: SocketAddr, is_shared: bool) -> Result<OwnedFd> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        set_socket_reuseaddr(&socket, true)?;
        set_socket_reuseport(&socket, is_shared)?;
        // Accepted sockets inherit it.
        set_tcp_nodelay(&socket, true)?;
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    open().with_context(|| format!("cannot listen at {address}"))
}

fn local_address(socket: &OwnedFd) -> Result<SocketAddr> {
    let copy = socket.try_clone().context("no descriptor")?;
    let address = TcpListener::from(copy).local_addr();
    address.context("a listening socket has no address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_addresses_keep_their_sockets() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let wanted = [(any, Sharing::Several(2)), (any, Sharing::Several(2))];
        let first = open(&wanted, &[]).expect("ports");
        assert_ne!(first[0].address, first[1].address);
        let next = open(&wanted[..1], &first).expect("ports");
        assert_eq!(next[0].address, first[0].address);
        assert!(Arc::ptr_eq(&next[0].sockets[0], &first[0].sockets[0]));
        let fixed = [(first[1].address, Sharing::One)];
        let error = open(&fixed, &[]).err().expect("it is taken").to_string();
        assert!(error.contains(&first[1].address.to_string()), "{error}");
    }

    #[test]
    fn no_socket_and_no_loop_is_left_out() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        for (sockets, loops) in [(1, 3), (2, 3), (3, 3), (3, 2), (3, 1)] {
            let port = &open(&[(any, Sharing::Several(sockets))], &[]).expect("a port")[0];
            let pairs: Vec<(usize, Arc<OwnedFd>)> = port.of_loops(loops).collect();
            assert_eq!(pairs.len(), loops.max(sockets));
            assert!((0..loops).all(|number| pairs.iter().any(|(its, _)| *its == number)));
            let has = |socket: &Arc<OwnedFd>| pairs.iter().any(|(_, its)| Arc::ptr_eq(its, socket));
            assert!(port.sockets.iter().all(has));
        }
    }
}
