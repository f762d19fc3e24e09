// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of one loop to upstreams: which are free, how many there are, and which upstreams fail. No call waits.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::{write, Errno};
use rustix::net::sockopt::socket_error;
use rustix::net::{recv, send, shutdown, RecvFlags, SendFlags, Shutdown};
use slab::Slab;

use super::channel::{open, Channel, Running};
use super::scripts::Scripts;
use super::{Endpoint, Upstream};
use crate::descriptors::{Spare, Taken};

/// The events of links have names with this bit.
pub const LINK: u64 = 1 << 63;
/// A request that must not be repeated gets a connection that was used so short a time ago, or a new one: the upstream may
/// just be closing an older one.
const SURELY_OPEN_MS: u64 = 1000;

/// Who is told of a link's events: a connection's place in the loop, and its number.
pub type Owner = (usize, u32);

pub struct Link {
    id: u32,
    channel: Channel,
    _taken: Taken,
    owner: Option<Owner>,
    peer: (usize, Endpoint),
    is_connected: bool,
    /// Of this request: the link had another one before.
    pub is_reused: bool,
    pub readable: bool,
    pub writable: bool,
    idle_since: u64,
}

/// What a request needs of its link.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// Not one that may be closed already.
    pub is_sure: bool,
    /// None that was used before.
    pub is_new: bool,
}

/// What a loop knows of one address.
#[derive(Default)]
struct Peer {
    /// The one that was used last stands last.
    idle: Vec<usize>,
    open: usize,
    failures: u32,
    down_until: u64,
    idle_ms: u64,
}

/// Why there is no link.
#[derive(Debug, PartialEq, Eq)]
pub enum NoLink {
    /// As many are open as may be.
    Full,
    /// It could not be opened.
    Failed(Errno),
}

pub struct Links {
    epoll: OwnedFd,
    links: Slab<Link>,
    next_id: u32,
    peers: HashMap<(usize, Endpoint), Peer>,
    /// By upstream: whose turn it is.
    turns: HashMap<usize, usize>,
    /// When idle links are looked at; none before.
    pub looks_at: Option<u64>,
    /// To start them.
    scripts: Option<Arc<Scripts>>,
    spare: Arc<Spare>,
    /// Among which the connections to an address are divided.
    loops: usize,
    /// How many the counter of the loops has of these.
    pub counted: usize,
}

impl Links {
    /// `epoll`: the loop's own.
    pub fn new(
        epoll: OwnedFd,
        loops: usize,
        scripts: Option<Arc<Scripts>>,
        spare: Arc<Spare>,
    ) -> Links {
        Links {
            epoll,
            links: Slab::new(),
            next_id: 0,
            peers: HashMap::new(),
            turns: HashMap::new(),
            looks_at: None,
            scripts,
            spare,
            loops: loops.max(1),
            counted: 0,
        }
    }

    pub fn open(&self) -> usize {
        self.links.len()
    }

    /// A link to the upstream whose turn it is. `order`: of a script.
    ///
    /// # Errors
    ///
    /// There is no link for this request.
    pub fn take(
        &mut self,
        upstream: &Upstream,
        owner: Owner,
        wants: Wants,
        order: &[u8],
        now: u64,
    ) -> Result<usize, NoLink> {
        let most = upstream.settings().connections.div_ceil(self.loops);
        let endpoints = upstream.endpoints.load();
        let begin = self.turns.get(&upstream.number).copied().unwrap_or(0);
        let turns = (0..endpoints.len()).map(|at| (begin + at) % endpoints.len());
        let mut chosen = None;
        // If all are down, each is as good as the others.
        for ignores_down in [false, true] {
            for at in turns.clone() {
                let name = (upstream.number, endpoints[at].clone());
                let peer = self.peers.get(&name);
                let is_free = peer.is_none_or(|peer| peer.open < most || !peer.idle.is_empty());
                let is_down = peer.is_some_and(|peer| peer.down_until > now);
                if is_free && (ignores_down || !is_down) && chosen.is_none() {
                    chosen = Some((at, name));
                }
            }
        }
        let Some((at, name)) = chosen else {
            return Err(NoLink::Full);
        };
        self.turns.insert(upstream.number, at + 1);
        let peer = self.peers.entry(name.clone()).or_default();
        peer.idle_ms = upstream.settings().idle_ms;
        while let Some(key) = self.peers.get_mut(&name).and_then(|peer| peer.idle.pop()) {
            if !self.is_quiet(key) {
                drop(self.remove(key));
                continue;
            }
            let is_fresh = self.links[key].idle_since + SURELY_OPEN_MS >= now;
            if !wants.is_new && (is_fresh || !wants.is_sure) {
                let link = &mut self.links[key];
                link.owner = Some(owner);
                link.is_reused = true;
                return Ok(key);
            }
            // All others are older. One gives its place away if there is no other.
            match self.peers.get_mut(&name) {
                Some(peer) if peer.open < most => peer.idle.push(key),
                _ => drop(self.remove(key)),
            }
            break;
        }
        let connected = self.connect(name.clone(), owner, order, now);
        if let Err(NoLink::Failed(_)) = connected {
            self.count_failure(name, upstream, now);
        }
        connected
    }

    fn connect(
        &mut self,
        name: (usize, Endpoint),
        owner: Owner,
        order: &[u8],
        now: u64,
    ) -> Result<usize, NoLink> {
        let taken = self.make_room(&name.1).ok_or(NoLink::Full)?;
        let (channel, is_connected) = match &name.1 {
            Endpoint::Script => (self.start(order)?, true),
            endpoint => {
                let (socket, is_connected) = open(endpoint).map_err(NoLink::Failed)?;
                (Channel::Socket(socket), is_connected)
            }
        };
        let link = Link {
            id: self.new_id(),
            channel,
            _taken: taken,
            owner: Some(owner),
            peer: name,
            is_connected,
            is_reused: false,
            readable: true,
            writable: is_connected,
            idle_since: now,
        };
        self.insert(link).map_err(NoLink::Failed)
    }

    /// Descriptors for one more link, if need be in place of those that are idle.
    fn make_room(&mut self, endpoint: &Endpoint) -> Option<Taken> {
        let count = match endpoint {
            // Two pipes, and the socket that says how it has ended; each has another end until the host has it.
            Endpoint::Script => 6,
            _ => 1,
        };
        self.spare.take(count).or_else(|| {
            self.close_idle();
            self.spare.take(count)
        })
    }

    fn start(&self, order: &[u8]) -> Result<Channel, NoLink> {
        let scripts = self.scripts.as_ref().ok_or(NoLink::Full)?;
        match scripts.run(order) {
            Ok(pipes) => Ok(Channel::Script(Running {
                output: pipes.output,
                input: Some(pipes.input),
                life: pipes.life,
                end: None,
            })),
            Err(Errno::MSGSIZE) => Err(NoLink::Failed(Errno::MSGSIZE)),
            // The host has too much to do, or is just being started again.
            Err(_) => Err(NoLink::Full),
        }
    }

    pub fn endpoint(&self, key: usize) -> &Endpoint {
        &self.links[key].peer.1
    }

    /// For another loop.
    pub fn give(&mut self, key: usize) -> Link {
        for file in self.links[key].channel.files() {
            let _ = epoll::delete(&self.epoll, file);
        }
        self.remove(key)
    }

    /// From another loop, with what its upstream still has to answer.
    ///
    /// # Errors
    ///
    /// The kernel has no memory left.
    pub fn adopt(&mut self, mut link: Link, owner: Owner) -> Result<usize, Errno> {
        link.owner = Some(owner);
        link.id = self.new_id();
        self.insert(link)
    }

    fn new_id(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1) & (u32::MAX >> 1);
        self.next_id
    }

    fn insert(&mut self, link: Link) -> Result<usize, Errno> {
        let (id, name) = (link.id, link.peer.clone());
        let key = self.links.insert(link);
        let data = epoll::EventData::new_u64(LINK | u64::from(id) << 32 | key as u64);
        use epoll::EventFlags as F;
        let flags = F::IN | F::OUT | F::RDHUP | F::ET;
        for file in self.links[key].channel.files() {
            if let Err(error) = epoll::add(&self.epoll, file, data, flags) {
                self.links.remove(key);
                return Err(error);
            }
        }
        self.peers.entry(name).or_default().open += 1;
        Ok(key)
    }

    /// Takes an event, and returns whose it is.
    pub fn event(&mut self, name: u64, flags: epoll::EventFlags) -> Option<Owner> {
        let (key, id) = (
            (name & u64::from(u32::MAX)) as usize,
            (name >> 32) as u32 & (u32::MAX >> 1),
        );
        let link = self.links.get_mut(key).filter(|link| link.id == id)?;
        use epoll::EventFlags as F;
        link.readable |= flags.intersects(F::IN | F::HUP | F::ERR | F::RDHUP);
        link.writable |= flags.intersects(F::OUT | F::HUP | F::ERR);
        if link.owner.is_none() && link.readable {
            // It is closed, or the upstream says something that nobody has asked for.
            self.close(key);
            return None;
        }
        link.owner
    }

    /// Whether the connection is there.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn is_connected(&mut self, key: usize) -> Result<bool, Errno> {
        let link = &mut self.links[key];
        if !link.is_connected && link.writable {
            if let Channel::Socket(socket) = &link.channel {
                socket_error(socket)??;
            }
            link.is_connected = true;
        }
        Ok(link.is_connected)
    }

    pub fn link(&self, key: usize) -> &Link {
        &self.links[key]
    }

    /// # Errors
    ///
    /// `AGAIN`: the upstream takes nothing now.
    pub fn send(&mut self, key: usize, bytes: &[u8]) -> Result<usize, Errno> {
        let link = &mut self.links[key];
        let sent = match &link.channel {
            Channel::Socket(socket) => send(socket, bytes, SendFlags::NOSIGNAL),
            Channel::Script(Running { input, .. }) => match input {
                Some(input) => write(input, bytes),
                None => Err(Errno::PIPE),
            },
        };
        link.writable &= sent != Err(Errno::AGAIN);
        sent
    }

    /// # Errors
    ///
    /// `AGAIN`: there is nothing now.
    pub fn receive(&mut self, key: usize, into: &mut [u8]) -> Result<usize, Errno> {
        let link = &mut self.links[key];
        let received = match &mut link.channel {
            Channel::Socket(socket) => {
                recv(socket, into, RecvFlags::empty()).map(|(length, _)| length)
            }
            Channel::Script(script) => script.receive(into),
        };
        match received {
            Ok(length) => Ok(length),
            Err(error) => {
                link.readable &= error != Errno::AGAIN;
                Err(error)
            }
        }
    }

    /// Nothing more will be sent.
    pub fn finish(&mut self, key: usize) {
        match &mut self.links[key].channel {
            Channel::Socket(socket) => drop(shutdown(socket, Shutdown::Write)),
            Channel::Script(script) => script.input = None,
        }
    }

    /// Its address answers.
    pub fn succeeds(&mut self, key: usize) {
        let name = &self.links[key].peer;
        if let Some(peer) = self.peers.get_mut(name) {
            peer.failures = 0;
            peer.down_until = 0;
        }
    }

    /// Its address does not do what it should. The link is closed.
    pub fn fails(&mut self, key: usize, upstream: &Upstream, now: u64) {
        let name = self.links[key].peer.clone();
        self.close(key);
        self.count_failure(name, upstream, now);
    }

    fn count_failure(&mut self, name: (usize, Endpoint), upstream: &Upstream, now: u64) {
        let settings = upstream.settings();
        let peer = self.peers.entry(name).or_default();
        peer.failures += 1;
        if peer.failures >= settings.failures {
            peer.down_until = now + settings.down_ms;
        }
    }

    /// The request has been answered, and the link can take another.
    pub fn put_back(&mut self, key: usize, now: u64) {
        let link = &mut self.links[key];
        link.owner = None;
        link.idle_since = now;
        let Some(peer) = self.peers.get_mut(&link.peer) else {
            return;
        };
        peer.idle.push(key);
        let looks_at = now + peer.idle_ms;
        self.looks_at = Some(self.looks_at.map_or(looks_at, |at| at.min(looks_at)));
        // An end that came before is not announced again.
        if !self.is_quiet(key) {
            self.close(key);
        }
    }

    /// A link without a request has neither ended nor said anything.
    fn is_quiet(&mut self, key: usize) -> bool {
        self.receive(key, &mut [0]) == Err(Errno::AGAIN)
    }

    pub fn close(&mut self, key: usize) {
        if let Some(link) = self.links.get(key) {
            if let Some(peer) = self.peers.get_mut(&link.peer) {
                peer.idle.retain(|idle| *idle != key);
            }
            self.remove(key);
        }
    }

    fn remove(&mut self, key: usize) -> Link {
        let link = self.links.remove(key);
        if let Some(peer) = self.peers.get_mut(&link.peer) {
            peer.open -= 1;
        }
        link
    }

    /// No further request will come.
    pub fn close_idle(&mut self) {
        let peers = self.peers.values_mut();
        let idle: Vec<usize> = peers
            .flat_map(|peer| std::mem::take(&mut peer.idle))
            .collect();
        for key in idle {
            self.remove(key);
        }
    }

    /// Closes what has been idle for too long, and forgets addresses that are not used any more.
    pub fn look(&mut self, now: u64) {
        if self.looks_at.is_none_or(|at| at > now) {
            return;
        }
        let mut next: Option<u64> = None;
        let mut old = Vec::new();
        for peer in self.peers.values() {
            for key in &peer.idle {
                let ends = self.links[*key].idle_since + peer.idle_ms;
                match ends <= now {
                    true => old.push(*key),
                    false => next = Some(next.map_or(ends, |at| at.min(ends))),
                }
            }
        }
        for key in old {
            self.close(key);
        }
        self.peers
            .retain(|_, peer| peer.open > 0 || peer.failures > 0);
        self.looks_at = next;
    }
}
