//! One loop: a thread with its own listening sockets. It waits for events, and for nothing else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use rustix::net::{acceptfrom_with, SocketAddrAny, SocketFlags};
use rustls::ServerConfig;
use slab::Slab;

use crate::access::limits::Admission;
use crate::access::remembered::Remembered;
use crate::connection::{Connection, Next, Peer};
use crate::context::{Context, Options, Shared, Site};
use crate::counts::add;
use crate::helpers::{Inbox, Ticket};
use crate::http::conditions;
use crate::pace::Pace;
use crate::residency::COPIED;
use crate::transport::Transport;

/// Events of one wait, and connections accepted before others have their turn.
const EVENTS: usize = 256;
const ACCEPTED: usize = 64;
/// Deadlines are kept so exactly, in milliseconds.
const TICK: u64 = 250;
/// After there was no descriptor for a connection: until the next try.
const PAUSE: u64 = 100;

/// Names of events that are not a connection's.
const INBOX: u64 = u64::MAX;
const FIRST_LISTENER: u64 = u64::MAX - 1000;

pub struct Listener {
    pub socket: OwnedFd,
    pub site: Site,
    /// Its clients speak TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

pub struct EventLoop {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// The listeners are out of `epoll`; until when.
    paused_until: Option<u64>,
    connections: Slab<(u32, Connection)>,
    /// Distinguishes a connection from the one that had its place before.
    next_id: u32,
    /// By tick: connections whose deadlines are to be looked at.
    deadlines: BTreeMap<u64, Vec<(usize, u32)>>,
    /// By millisecond: connections that can go on then.
    later: BTreeMap<u64, Vec<(usize, u32)>>,
    /// Connections that could go on.
    again: Vec<(usize, u32)>,
    context: Context,
    /// When the connections that are left are cut off, once the server ends.
    ends_at: u64,
    began: Instant,
    date_second: u64,
}

impl EventLoop {
    /// # Errors
    ///
    /// The kernel has no descriptor or memory left.
    pub fn new(
        number: usize,
        listeners: Vec<Listener>,
        inbox: Arc<Inbox>,
        shared: Arc<Shared>,
        options: Arc<Options>,
    ) -> Result<EventLoop> {
        let remembered = Remembered::new(options.passwords.remember_ms)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("no epoll descriptor")?;
        let wakes = epoll::EventData::new_u64(INBOX);
        epoll::add(&epoll, &inbox.wakes, wakes, epoll::EventFlags::IN)?;
        let mut it = EventLoop {
            epoll,
            listeners,
            paused_until: None,
            connections: Slab::new(),
            next_id: 0,
            deadlines: BTreeMap::new(),
            later: BTreeMap::new(),
            again: Vec::new(),
            context: Context {
                shared,
                options,
                inbox,
                buffer: vec![0; COPIED],
                now: 0,
                date: String::new(),
                log_time: String::new(),
                pace: Pace::default(),
                remembered,
                is_ending: false,
                number,
            },
            ends_at: 0,
            began: Instant::now(),
            date_second: 0,
        };
        it.listen()?;
        Ok(it)
    }

    /// Until the server ends and no connection is left, or none may be left any more.
    pub fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for events"),
            }
            let turn = Instant::now();
            self.tell_time();
            for event in events.drain(..) {
                self.take(event);
            }
            for (key, id) in std::mem::take(&mut self.again) {
                self.drive(key, id);
            }
            self.resume();
            self.look_at_deadlines();
            self.unpause()?;
            if self.context.shared.ends.load(Ordering::Relaxed) && !self.context.is_ending {
                self.begin_end();
            }
            let is_over = self.connections.is_empty() || self.context.now >= self.ends_at;
            if self.context.is_ending && is_over {
                return Ok(());
            }
            let ns = u64::try_from(turn.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let counts = self.context.counts();
            counts.longest_turn_ns.fetch_max(ns, Ordering::Relaxed);
            self.context
                .pace
                .turn(&self.context.shared.counts[self.context.number]);
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec::default());
        }
        let tick = self.deadlines.keys().next().map(|tick| tick * TICK);
        let end = self.context.is_ending.then_some(self.ends_at);
        let later = self.later.keys().next().copied();
        let next = [tick, later, self.paused_until, end]
            .into_iter()
            .flatten()
            .min()?;
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ms = next.saturating_sub(now);
        Some(Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as i64,
        })
    }

    fn tell_time(&mut self) {
        self.context.now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = since_1970.map_or(0, |time| time.as_secs());
        if second != self.date_second || self.context.date.is_empty() {
            self.date_second = second;
            self.context.date = conditions::date(second);
            let time = Timestamp::from_second(second as i64).unwrap_or(Timestamp::MAX);
            self.context.log_time = time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
        }
    }

    fn take(&mut self, event: epoll::Event) {
        let (flags, name) = (event.flags, event.data.u64());
        if name == INBOX {
            return self.take_answers();
        }
        if name >= FIRST_LISTENER {
            return self.accept((name - FIRST_LISTENER) as usize);
        }
        let (key, id) = ((name & u64::from(u32::MAX)) as usize, (name >> 32) as u32);
        let Some((_, connection)) = self.connections.get_mut(key).filter(|(its, _)| *its == id)
        else {
            return;
        };
        use epoll::EventFlags as F;
        connection.readable |= flags.intersects(F::IN | F::HUP | F::ERR | F::RDHUP);
        connection.writable |= flags.intersects(F::OUT | F::HUP | F::ERR);
        self.drive(key, id);
    }

    fn take_answers(&mut self) {
        let mut answered = Vec::new();
        let inbox = Arc::clone(&self.context.inbox);
        inbox.take(|ticket, result| {
            let Ticket { connection, .. } = ticket;
            if let Some((id, it)) = self.connections.get_mut(connection) {
                it.answered(ticket, result, &mut self.context);
                answered.push((connection, *id));
            }
        });
        for (key, id) in answered {
            self.drive(key, id);
        }
    }

    fn drive(&mut self, key: usize, id: u32) {
        let Some((_, connection)) = self.connections.get_mut(key).filter(|(its, _)| *its == id)
        else {
            return;
        };
        let next = connection.drive(key, &mut self.context);
        self.settle(key, id, next);
    }

    fn settle(&mut self, key: usize, id: u32, next: Next) {
        match next {
            Next::Close => return self.close(key),
            Next::Again => self.again.push((key, id)),
            Next::At(_) | Next::Wait => {}
        }
        let Some((_, connection)) = self.connections.get_mut(key) else {
            return;
        };
        if let Next::At(at) = next {
            if connection.resumes_at.replace(at) != Some(at) {
                self.later.entry(at).or_default().push((key, id));
            }
        }
        if self.context.is_ending && connection.is_idle() {
            return self.close(key);
        }
        // A deadline that moves on is looked at when the earlier one is over.
        let tick = connection.deadline / TICK + 1;
        if tick < connection.looked_at {
            connection.looked_at = tick;
            self.deadlines.entry(tick).or_default().push((key, id));
        }
    }

    fn close(&mut self, key: usize) {
        if let Some((_, mut connection)) = self.connections.try_remove(key) {
            match connection.is_handshaking() {
                true => self.context.pace.fails(),
                false => connection.end(),
            }
            let counts = self.context.counts();
            counts
                .connections
                .store(self.connections.len() as u64, Ordering::Relaxed);
        }
    }

    fn resume(&mut self) {
        while let Some(entry) = self.later.first_entry() {
            if *entry.key() > self.context.now {
                return;
            }
            let (at, due) = entry.remove_entry();
            for (key, id) in due {
                let found = self.connections.get_mut(key).filter(|(its, _)| *its == id);
                if let Some((_, connection)) = found.filter(|(_, it)| it.resumes_at == Some(at)) {
                    connection.resumes_at = None;
                    self.drive(key, id);
                }
            }
        }
    }

    fn look_at_deadlines(&mut self) {
        let current = self.context.now / TICK;
        while let Some(entry) = self.deadlines.first_entry() {
            if *entry.key() > current {
                return;
            }
            let (tick, due) = entry.remove_entry();
            for (key, id) in due {
                let found = self.connections.get_mut(key).filter(|(its, _)| *its == id);
                let Some((_, connection)) = found.filter(|(_, it)| it.looked_at == tick) else {
                    continue;
                };
                connection.looked_at = u64::MAX;
                let next = match connection.deadline <= self.context.now {
                    true => connection.expire(key, &mut self.context),
                    false => Next::Wait,
                };
                self.settle(key, id, next);
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTED {
            if self.connections.len() >= self.context.options.max_connections {
                return self.pause();
            }
            let Some(Listener { socket, site, tls }) = self.listeners.get(listener) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match acceptfrom_with(socket, flags) {
                Ok((socket, peer)) => {
                    let address = peer.and_then(address);
                    let (site, tls) = (*site, tls.clone());
                    if let Some(peer) = self.admit(address, site) {
                        self.add(socket, peer, site, tls.as_ref());
                    }
                }
                Err(Errno::AGAIN) => return,
                // The client has gone already, or a packet was wrong (accept(2)).
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN) => {}
                Err(_) => return self.pause(),
            }
        }
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

    fn add(&mut self, socket: OwnedFd, peer: Peer, site: Site, tls: Option<&Arc<ServerConfig>>) {
        let is_full = self.context.pace.open >= self.context.options.max_handshakes;
        let transport = match tls {
            Some(_) if is_full => None,
            tls => Transport::new(tls).ok(),
        };
        let Some(transport) = transport else {
            return add(&self.context.counts().refused_handshakes, 1);
        };
        self.context.pace.open += usize::from(tls.is_some());
        self.next_id = self.next_id.wrapping_add(1) & (u32::MAX >> 1);
        let id = self.next_id;
        let connection = Connection::new(socket, transport, peer, site, id, &self.context);
        let key = self.connections.insert((id, connection));
        let name = epoll::EventData::new_u64(u64::from(id) << 32 | key as u64);
        use epoll::EventFlags as F;
        let socket = self.connections[key].1.socket().as_fd();
        if epoll::add(&self.epoll, socket, name, F::IN | F::OUT | F::RDHUP | F::ET).is_err() {
            return self.close(key);
        }
        let counts = self.context.counts();
        add(&counts.accepted, 1);
        counts
            .connections
            .store(self.connections.len() as u64, Ordering::Relaxed);
        // The request is often there already.
        self.drive(key, id);
    }

    fn listen(&mut self) -> Result<()> {
        for (number, listener) in self.listeners.iter().enumerate() {
            let name = epoll::EventData::new_u64(FIRST_LISTENER + number as u64);
            epoll::add(&self.epoll, &listener.socket, name, epoll::EventFlags::IN)
                .context("cannot wait for connections")?;
        }
        Ok(())
    }

    /// Lets connections wait in the listening sockets for a while, as there is no room.
    fn pause(&mut self) {
        if self.paused_until.is_none() {
            for listener in &self.listeners {
                let _ = epoll::delete(&self.epoll, &listener.socket);
            }
        }
        self.paused_until = Some(self.context.now + PAUSE);
    }

    fn unpause(&mut self) -> Result<()> {
        match self.paused_until {
            Some(until) if until <= self.context.now => {
                self.paused_until = None;
                self.listen()
            }
            _ => Ok(()),
        }
    }

    /// No further connection is accepted, and those that are there end with their requests.
    fn begin_end(&mut self) {
        // Who is in the queue of a socket already would get a reset.
        for listener in 0..self.listeners.len() {
            self.accept(listener);
        }
        self.paused_until = None;
        self.listeners.clear();
        self.context.is_ending = true;
        self.ends_at = self.context.now + self.context.options.grace_ms;
        // A request that is on its way already is answered; `settle` closes those that stay idle.
        let idle: Vec<(usize, u32)> = self
            .connections
            .iter()
            .filter(|(_, (_, connection))| connection.is_idle())
            .map(|(key, (id, _))| (key, *id))
            .collect();
        for (key, id) in idle {
            if let Some((_, connection)) = self.connections.get_mut(key) {
                connection.readable = true;
            }
            self.drive(key, id);
        }
    }
}

fn address(peer: SocketAddrAny) -> Option<IpAddr> {
    std::net::SocketAddr::try_from(peer)
        .ok()
        .map(|peer| peer.ip().to_canonical())
}
