// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes new connections, as far as there is room for them and their clients may have them.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{acceptfrom_with, SocketAddrAny, SocketFlags};

use super::{EventLoop, Listener, FIRST_LISTENER};
use crate::access::limits::Admission;
use crate::address::BACKLOG;
use crate::connection::{Connection, Next, Peer};
use crate::context::Site;
use crate::counts::add;
use crate::transport::Transport;

/// After there was no room for a connection: until the next try, in milliseconds.
const PAUSE: u64 = 100;
/// Connections that are closed at once to make room for others, and how long they have had nothing to do, in milliseconds.
const CLOSED: usize = 32;
const IDLE: u64 = 1000;
/// Connections to the counters for which there is always room.
const RESERVED: usize = 4;
/// Connections accepted before others have their turn.
const ACCEPTED: usize = 64;

impl EventLoop {
    pub(super) fn accept(&mut self, listener: usize) {
        self.accept_some(listener);
        self.begin_accepted();
    }

    fn accept_some(&mut self, listener: usize) {
        for number in 0..ACCEPTED {
            let Some(listener) = self.listeners.get(listener) else {
                return;
            };
            let site = listener.site;
            match self.accept_one(&listener.clone()) {
                Accepted::One => {}
                Accepted::Nothing => return,
                // The event says that one waits, and not how many.
                Accepted::Full if number > 0 => return,
                Accepted::Full if self.make_room() => {}
                Accepted::Full => return self.pause(site == Site::Counts),
                Accepted::Failed => {
                    self.context.stage.close_open_files();
                    return self.pause(true);
                }
            }
        }
    }

    /// Serves the connections that have been accepted, as far as their requests have come. Many clients have sent theirs by
    /// now, and one that ends with its answer is never waited for: that saves the call which would have the kernel report
    /// its events, and the events.
    fn begin_accepted(&mut self) {
        let mut accepted = std::mem::take(&mut self.accepted);
        for (key, id) in accepted.drain(..) {
            let found = self.connections.get_mut(key);
            let Some((_, connection)) = found.filter(|(its, _)| *its == id) else {
                continue;
            };
            match connection.drive(key, &mut self.context) {
                Next::Close => self.close(key),
                next => {
                    if self.wait_for(key, id) {
                        self.settle(key, id, next);
                    }
                }
            }
        }
        self.accepted = accepted;
    }

    /// Those that wait in the queue of a socket before it is closed.
    pub(super) fn accept_all(&mut self, listener: &Listener) {
        for _ in 0..BACKLOG {
            let accepted = self.accept_one(listener);
            self.begin_accepted();
            if accepted != Accepted::One {
                return;
            }
        }
    }

    fn accept_one(&mut self, listener: &Listener) -> Accepted {
        let reserved = match listener.site {
            Site::Counts => RESERVED,
            Site::Files(_) => 0,
        };
        let most = self.context.options.max_connections + reserved;
        if self.connections.len() >= most {
            return Accepted::Full;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match acceptfrom_with(&listener.socket, flags) {
            Ok((socket, peer)) => {
                let address = peer.and_then(address);
                if let Some(peer) = self.admit(address, listener.site) {
                    self.add(socket, peer, listener);
                }
                Accepted::One
            }
            Err(Errno::AGAIN) => Accepted::Nothing,
            // The client has gone already, or a packet was wrong (accept(2)).
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN) => Accepted::One,
            Err(_) => Accepted::Failed,
        }
    }

    /// Closes some of the connections that have had nothing to do for the longest time. False: there are none.
    fn make_room(&mut self) -> bool {
        let now = self.context.now;
        let all = self.connections.iter();
        let idle = all.filter_map(|(key, (_, it))| Some((it.idle_since()?, key)));
        let mut idle: Vec<(u64, usize)> = idle.filter(|(since, _)| since + IDLE <= now).collect();
        // Each is looked at, so more than one is closed where there are many.
        let count = (idle.len() / 8).clamp(1, CLOSED);
        if idle.len() > count {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        let before = self.connections.len();
        for (_, key) in idle {
            let connection = self.connections.get(key);
            // A request that is on its way is answered.
            if connection.is_some_and(|(_, it)| !it.has_bytes()) {
                self.close(key);
            }
        }
        let closed = before - self.connections.len();
        add(&self.context.counts().closed_idle, closed as u64);
        closed > 0
    }

    /// `None`: the client may have no more connections now, and the socket is closed at once.
    fn admit(&self, address: Option<IpAddr>, site: Site) -> Option<Peer> {
        let counts = self.context.counts();
        let limits = self.context.shared.limits.as_ref();
        let admission = match limits {
            // Counters have to be read above all when there is too much of something.
            Some(limits) if site != Site::Counts => limits.connect(address),
            _ => Admission::Exempt,
        };
        let place = match admission {
            Admission::Counted(place) => Some(place),
            Admission::Exempt => None,
            Admission::Untracked => {
                add(&counts.untracked_clients, 1);
                None
            }
            Admission::TooMany => {
                add(&counts.limited_connections, 1);
                return None;
            }
            Admission::TooFast => {
                add(&counts.limited_connection_rates, 1);
                return None;
            }
        };
        Some(Peer { address, place })
    }

    fn add(&mut self, socket: OwnedFd, peer: Peer, listener: &Listener) {
        let (site, tls) = (listener.site, listener.tls.as_ref());
        let is_full = self.context.pace.open >= self.context.options.max_handshakes;
        let transport = match tls {
            Some(_) if is_full => None,
            tls => Transport::new(tls).ok(),
        };
        let Some(transport) = transport else {
            return add(&self.context.counts().refused_handshakes, 1);
        };
        self.context.pace.open += usize::from(tls.is_some());
        let id = self.new_id();
        let connection = Connection::new(socket, transport, peer, site, id, &self.context);
        add(&self.context.counts().accepted, 1);
        let key = self.put(id, connection);
        self.accepted.push((key, id));
    }

    pub(super) fn listen(&mut self) -> Result<()> {
        for (number, listener) in self.listeners.iter().enumerate() {
            let name = epoll::EventData::new_u64(FIRST_LISTENER + number as u64);
            match epoll::add(&self.epoll, &listener.socket, name, epoll::EventFlags::IN) {
                // It was not paused.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).context("cannot wait for connections"),
            }
        }
        Ok(())
    }

    /// Lets connections wait in the listening sockets for a while, as there is no room. `with_counts`: not even for those that
    /// read the counters.
    fn pause(&mut self, with_counts: bool) {
        let all = self.listeners.iter();
        for listener in all.filter(|it| with_counts || it.site != Site::Counts) {
            // It may be out already.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        self.paused_until = Some(self.context.now + PAUSE);
    }

    pub(super) fn unpause(&mut self) -> Result<()> {
        match self.paused_until {
            Some(until) if until <= self.context.now => {
                self.paused_until = None;
                self.listen()
            }
            _ => Ok(()),
        }
    }
}

/// What became of the first connection in a queue.
#[derive(PartialEq)]
enum Accepted {
    One,
    Nothing,
    /// There are as many as may be.
    Full,
    /// The kernel has no descriptor or memory left.
    Failed,
}

fn address(peer: SocketAddrAny) -> Option<IpAddr> {
    std::net::SocketAddr::try_from(peer)
        .ok()
        .map(|peer| peer.ip().to_canonical())
}
