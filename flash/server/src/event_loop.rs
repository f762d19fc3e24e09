// SPDX-License-Identifier: MIT OR Apache-2.0
//! One loop: a thread with its own listening sockets. It waits for events, and for nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use rustls::ServerConfig;
use slab::Slab;

use crate::access::remembered::Remembered;
use crate::connection::{Connection, Next, SIDE};
use crate::context::{Context, Options, Phase, Shared, Site};
use crate::counts::{add, subtract};
use crate::handover::Arrivals;
use crate::helpers::{Inbox, Ticket};
use crate::http::conditions;
use crate::pace::Pace;
use crate::residency::COPIED;
use crate::stages::LoopState;
use crate::upstream::application::queues::Queues;
use crate::upstream::links::{Links, LINK};

mod accepting;
mod handing;
mod lending;
#[cfg(test)]
mod tests;

/// Events of one wait.
const EVENTS: usize = 256;
/// Deadlines are kept so exactly, in milliseconds.
const TICK: u64 = 250;

/// Names of events that are not a connection's.
const INBOX: u64 = u64::MAX;
/// There are new processes of an application.
const ARRIVALS: u64 = u64::MAX - 1;
const FIRST_LISTENER: u64 = u64::MAX - 1000;

#[derive(Clone)]
pub struct Listener {
    /// Of this loop alone, or of several.
    pub socket: Arc<OwnedFd>,
    pub site: Site,
    /// Its clients speak TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

pub struct EventLoop {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// Listeners are out of `epoll`; until when.
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
    /// Connections that have been accepted, and whose events are not waited for yet.
    accepted: Vec<(usize, u32)>,
    context: Context,
    arrivals: Arc<Arrivals>,
    /// Places of connections that are still to leave, as this configuration or the server ends.
    leaving: Range<usize>,
    /// When the connections that are left are cut off, once the server or this configuration ends.
    ends_at: u64,
}

impl EventLoop {
    /// # Errors
    ///
    /// The kernel has no descriptor or memory left.
    pub fn new(
        number: usize,
        listeners: Vec<Listener>,
        inbox: Arc<Inbox>,
        arrivals: Arc<Arrivals>,
        shared: Arc<Shared>,
        options: Arc<Options>,
    ) -> Result<EventLoop> {
        let key = shared.password_key.clone();
        let remembered = Remembered::new(key, options.passwords.remember_ms);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("no epoll descriptor")?;
        let wakes = epoll::EventData::new_u64(INBOX);
        epoll::add(&epoll, &inbox.wakes, wakes, epoll::EventFlags::IN)?;
        let own = epoll.try_clone().context("no epoll descriptor")?;
        let loops = shared.loops;
        let (scripts, spare) = (shared.scripts.clone(), Arc::clone(&shared.spare));
        let stage = LoopState::new(&options.stages, loops);
        let of_queues = epoll.try_clone().context("no epoll descriptor")?;
        let queues = Queues::new(of_queues, &shared.pools, &inbox, ARRIVALS)
            .context("cannot wait for applications")?;
        let mut it = EventLoop {
            epoll,
            listeners,
            paused_until: None,
            connections: Slab::new(),
            next_id: 0,
            deadlines: BTreeMap::new(),
            later: BTreeMap::new(),
            again: Vec::new(),
            accepted: Vec::new(),
            context: Context {
                shared,
                options,
                inbox,
                buffer: vec![0; COPIED],
                now: 0,
                second: 0,
                date: String::new(),
                log_time: String::new(),
                log_ms: 0,
                pace: Pace::default(),
                remembered,
                stage,
                links: Links::new(own, loops, scripts, spare),
                queues,
                phase: Phase::Serves,
                number,
            },
            arrivals,
            leaving: 0..0,
            ends_at: 0,
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
            self.look_at_phase();
            for event in events.drain(..) {
                self.take(event);
            }
            for (key, id) in std::mem::take(&mut self.again) {
                self.drive(key, id);
            }
            self.take_arrivals();
            self.leave_in_pieces();
            self.resume();
            self.look_at_deadlines();
            self.serve_waiting();
            self.context.links.look(self.context.now);
            self.context.stage.drop_unused(self.context.now);
            self.unpause()?;
            if self.is_over() {
                self.leave();
                return Ok(());
            }
            let ns = u64::try_from(turn.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let counts = self.context.counts();
            counts.count_turn(ns);
            let (before, links) = (self.context.links.counted, self.context.links.open());
            add(&counts.links, links as u64);
            subtract(&counts.links, before as u64);
            self.context.links.counted = links;
            self.context
                .pace
                .turn(&self.context.shared.counts[self.context.number]);
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let goes_on = !self.again.is_empty() || !self.leaving.is_empty();
        if goes_on || !self.arrivals.is_empty() {
            return Some(Timespec::default());
        }
        let tick = self.deadlines.keys().next().map(|tick| tick * TICK);
        let ends = self.context.phase != Phase::Serves && self.arrivals.is_complete();
        let end = ends.then_some(self.ends_at);
        let later = self.later.keys().next().copied();
        let links = self.context.links.looks_at;
        let stage = self.context.stage.looks_at;
        let next = [tick, later, self.paused_until, end, links, stage]
            .into_iter()
            .flatten()
            .min()?;
        let ms = next.saturating_sub(self.context.shared.now());
        Some(Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as i64,
        })
    }

    fn tell_time(&mut self) {
        self.context.now = self.context.shared.now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let since_1970 = since_1970.unwrap_or_default();
        let second = since_1970.as_secs();
        self.context.log_ms = since_1970.subsec_millis();
        if second != self.context.second || self.context.date.is_empty() {
            self.context.second = second;
            self.context.date = conditions::date(second);
            let format = self.context.options.log_format.time();
            let time = Timestamp::from_second(second as i64).unwrap_or(Timestamp::MAX);
            self.context.log_time = time.strftime(format).to_string();
        }
    }

    fn take(&mut self, event: epoll::Event) {
        let (flags, name) = (event.flags, event.data.u64());
        if name == INBOX {
            // Each turn takes what other loops have given.
            return self.take_answers();
        }
        if name == ARRIVALS {
            // Each turn looks for processes.
            return;
        }
        if name >= FIRST_LISTENER {
            return self.accept((name - FIRST_LISTENER) as usize);
        }
        if name & LINK != 0 {
            if let Some((key, id)) = self.context.links.event(name, flags) {
                self.drive(key, id);
            }
            return;
        }
        let is_side = name & SIDE != 0;
        let name = name & !SIDE;
        let (key, id) = ((name & u64::from(u32::MAX)) as usize, (name >> 32) as u32);
        let Some((_, connection)) = self.connections.get_mut(key).filter(|(its, _)| *its == id)
        else {
            return;
        };
        if is_side {
            return self.drive(key, id);
        }
        use epoll::EventFlags as F;
        connection.readable |= flags.intersects(F::IN | F::HUP | F::ERR | F::RDHUP);
        connection.writable |= flags.intersects(F::OUT | F::HUP | F::ERR);
        connection.has_ended |= flags.intersects(F::RDHUP | F::HUP | F::ERR);
        connection.is_gone |= flags.intersects(F::HUP | F::ERR);
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
        if self.context.phase != Phase::Serves && self.part(key) {
            return;
        }
        let Some((_, connection)) = self.connections.get_mut(key) else {
            return;
        };
        if connection.needs_room() && !connection.asks_for_room {
            // If the socket takes bytes again by now, this is an event, too.
            connection.asks_for_room = true;
            let socket = connection.socket().as_fd();
            let asked = epoll::modify(&self.epoll, socket, name(key, id), events(connection));
            if asked.is_err() {
                return self.close(key);
            }
        }
        if let Next::At(at) = next {
            if connection.resumes_at.replace(at) != Some(at) {
                self.later.entry(at).or_default().push((key, id));
            }
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
            connection.release(key, &mut self.context);
            if connection.was_lent() {
                // Closing it does not take it out while a process has it, too.
                let _ = epoll::delete(&self.epoll, connection.socket());
            }
            subtract(&self.context.counts().connections, 1);
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

    fn new_id(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1) & (u32::MAX >> 2);
        self.next_id
    }

    /// Adds a connection, and returns its place, unless it cannot be waited for.
    fn insert(&mut self, id: u32, connection: Connection) -> Option<usize> {
        let key = self.put(id, connection);
        if !self.wait_for(key, id) {
            return None;
        }
        let name = SIDE | u64::from(id) << 32 | key as u64;
        let connection = &self.connections[key].1;
        let queues = &self.context.queues;
        let listens = connection
            .process()
            .map(|process| queues.listen(process, name));
        let crosses = connection
            .bridge()
            .map(|bridge| queues.cross(bridge.own(), name));
        if matches!(listens, Some(Err(_))) || matches!(crosses, Some(Err(_))) {
            self.close(key);
            return None;
        }
        Some(key)
    }

    /// Adds a connection whose events are not waited for yet, and returns its place.
    fn put(&mut self, id: u32, connection: Connection) -> usize {
        add(&self.context.counts().connections, 1);
        self.connections.insert((id, connection))
    }

    /// Has the kernel report what happens to the client's socket. False: it cannot, and the connection is closed.
    fn wait_for(&mut self, key: usize, id: u32) -> bool {
        let connection = &mut self.connections[key].1;
        connection.asks_for_room = connection.needs_room();
        let socket = connection.socket().as_fd();
        let added = epoll::add(&self.epoll, socket, name(key, id), events(connection));
        if added.is_err() {
            self.close(key);
        }
        added.is_ok()
    }
}

/// By which an event names a connection.
fn name(key: usize, id: u32) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(id) << 32 | key as u64)
}

/// What the kernel is to report of a connection.
fn events(of: &Connection) -> epoll::EventFlags {
    use epoll::EventFlags as F;
    let room = match of.asks_for_room {
        true => F::OUT,
        false => F::empty(),
    };
    F::IN | F::RDHUP | F::ET | room
}
