// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets. Those of an address stay open as long as a configuration has the address: a listening socket that
//! is closed resets the connections that wait in its queue.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{
    bind, getsockname, ipproto, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::address::{Address, BACKLOG};
use crate::systemd::Passed;
use crate::unix;

/// An address that is listened at.
#[derive(Clone)]
pub struct Port {
    /// As in the configuration: port 0 is one that the kernel chooses.
    wanted: Address,
    /// As clients know them. What systemd passes under one name may have several.
    pub addresses: Vec<Address>,
    sockets: Vec<Arc<OwnedFd>>,
    /// Of a Unix socket. Who drops it last removes it.
    _name: Option<Arc<unix::Name>>,
}

/// How many sockets an address has, if flash opens them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One for all loops.
    One,
    /// So many, among which the kernel distributes the connections.
    Several(usize),
}

/// The address that cannot be listened at.
#[derive(Debug)]
pub struct CannotListen(pub Address);

impl fmt::Display for CannotListen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cannot listen at {}", self.0)
    }
}

/// What sockets come from, and what they are made like.
pub struct Sources<'a> {
    pub before: &'a [Port],
    pub passed: &'a Passed,
    pub unix: &'a unix::Settings,
}

impl Sources<'_> {
    /// Takes the sockets of earlier addresses, and opens those that are missing.
    ///
    /// # Errors
    ///
    /// An address cannot be listened at; the error names it.
    pub fn open(&self, wanted: &[(Address, Sharing)]) -> Result<Vec<Port>> {
        let mut free: Vec<&Port> = self.before.iter().collect();
        let mut ports = Vec::new();
        for (wanted, sharing) in wanted {
            let same = free.iter().position(|port| port.is_at(wanted));
            ports.push(match same {
                Some(place) => free.remove(place).clone(),
                None => self
                    .open_port(wanted, *sharing)
                    .with_context(|| CannotListen(wanted.clone()))?,
            });
        }
        Ok(ports)
    }

    fn open_port(&self, wanted: &Address, sharing: Sharing) -> Result<Port> {
        let mut name = None;
        let sockets = match wanted {
            Address::Inet(address) => self.open_inet(*address, sharing)?,
            Address::Unix(path) => {
                let (socket, its_name) = unix::listen_at(path, self.unix)?;
                name = Some(Arc::new(its_name));
                vec![Arc::new(socket)]
            }
            Address::Passed(name) => self.passed.named(name)?,
        };
        let addresses = match wanted {
            Address::Unix(_) => vec![wanted.clone()],
            // All sockets that flash opens at an address have the same.
            Address::Inet(_) => vec![local_address(&sockets[0])?],
            Address::Passed(_) => sockets
                .iter()
                .map(local_address)
                .collect::<Result<Vec<_>>>()?,
        };
        Ok(Port {
            wanted: wanted.clone(),
            addresses,
            sockets,
            _name: name,
        })
    }

    fn open_inet(&self, mut address: SocketAddr, sharing: Sharing) -> Result<Vec<Arc<OwnedFd>>> {
        // What this process listens at with another address of the same port does not take clients away.
        let has_port = |its: &Address| its.port() == Some(address.port());
        let mut before = self.before.iter().flat_map(|port| &port.addresses);
        let is_ours = before.any(has_port);
        let Sharing::Several(count) = sharing else {
            return Ok(vec![Arc::new(listen_at(address, is_ours)?)]);
        };
        if !is_ours {
            // The loops share the port. Another server that shares its own would take a part of the clients.
            drop(listen_at(address, false)?);
        }
        let mut sockets = Vec::new();
        for _ in 0..count {
            let socket = listen_at(address, true)?;
            let socket = Arc::new(socket);
            if let Address::Inet(known) = local_address(&socket)? {
                address = known;
            }
            sockets.push(socket);
        }
        Ok(sockets)
    }
}

impl Port {
    /// The configuration calls it so.
    pub fn is_at(&self, address: &Address) -> bool {
        self.wanted == *address
    }

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

    /// What the start message calls its addresses.
    pub fn urls(&self, scheme: &str, path: &str) -> Vec<String> {
        let url = |address: &Address| match address {
            Address::Inet(address) => format!("{scheme}://{address}{path}"),
            other => format!("{other} ({scheme})"),
        };
        self.addresses.iter().map(url).collect()
    }
}

/// A port for one loop alone.
///
/// # Errors
///
/// It cannot be listened at; the error names it.
pub fn open_alone(address: SocketAddr) -> Result<(OwnedFd, SocketAddr)> {
    let open = || -> Result<(OwnedFd, SocketAddr)> {
        let socket = listen_at(address, false)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((socket, address))
    };
    open().with_context(|| CannotListen(address.into()))
}

/// `is_shared`: by several sockets, among which the kernel distributes the connections.
fn listen_at(address: SocketAddr, is_shared: bool) -> rustix::io::Result<OwnedFd> {
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
}

fn local_address(socket: &Arc<OwnedFd>) -> Result<Address> {
    let address = getsockname(socket).context("a listening socket has no address")?;
    if let Ok(inet) = SocketAddr::try_from(address.clone()) {
        return Ok(Address::Inet(inet));
    }
    let unix = SocketAddrUnix::try_from(address).context("its kind of address is not known")?;
    let path = unix.path_bytes().unwrap_or_default().to_vec();
    let path = String::from_utf8_lossy(&path).into_owned();
    Ok(Address::Unix(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(wanted: &[(Address, Sharing)], before: &[Port]) -> Result<Vec<Port>> {
        let sources = Sources {
            before,
            passed: &Passed::default(),
            unix: &unix::Settings::default(),
        };
        sources.open(wanted)
    }

    fn any() -> Address {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn known_addresses_keep_their_sockets() {
        let wanted = [(any(), Sharing::Several(2)), (any(), Sharing::Several(2))];
        let first = open(&wanted, &[]).expect("ports");
        assert_ne!(first[0].addresses, first[1].addresses);
        let next = open(&wanted[..1], &first).expect("ports");
        assert_eq!(next[0].addresses, first[0].addresses);
        assert!(Arc::ptr_eq(&next[0].sockets[0], &first[0].sockets[0]));
        let taken = first[1].addresses[0].clone();
        let fixed = [(taken.clone(), Sharing::One)];
        let error = open(&fixed, &[]).err().expect("it is taken").to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
    }

    #[test]
    fn a_unix_socket_is_kept_and_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("socket");
        let wanted = [(Address::Unix(path.clone()), Sharing::Several(2))];
        let first = open(&wanted, &[]).expect("room");
        let next = open(&wanted, &first).expect("it is known");
        drop(first);
        assert!(path.exists());
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn no_socket_and_no_loop_is_left_out() {
        for (sockets, loops) in [(1, 3), (2, 3), (3, 3), (3, 2), (3, 1)] {
            let port = &open(&[(any(), Sharing::Several(sockets))], &[]).expect("a port")[0];
            let pairs: Vec<(usize, Arc<OwnedFd>)> = port.of_loops(loops).collect();
            assert_eq!(pairs.len(), loops.max(sockets));
            assert!((0..loops).all(|number| pairs.iter().any(|(its, _)| *its == number)));
            let has = |socket: &Arc<OwnedFd>| pairs.iter().any(|(_, its)| Arc::ptr_eq(its, socket));
            assert!(port.sockets.iter().all(has));
        }
    }
}
