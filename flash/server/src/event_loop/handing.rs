// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loop does with its connections when the next configuration is in force: it gives them to the loops that serve
//! it, each as soon as no helper works for it.

use super::EventLoop;
use crate::connection::{Connection, Next};
use crate::context::{Phase, Site};
use crate::counts::{add, subtract};
use crate::handover::Moved;
use crate::upstream::Endpoint;

/// A helper's answer that comes in the last moment has to be taken still.
const LATE: u64 = 1000;
/// Connections that are given away, or taken, before others have their turn: each takes some microseconds.
const MOVED: usize = 64;

impl EventLoop {
    /// The server's task for its loops may have changed.
    pub(super) fn look_at_phase(&mut self) {
        let phase = self.context.shared.phase();
        if phase == self.context.phase {
            return;
        }
        self.context.phase = phase;
        match phase {
            Phase::Serves => {}
            Phase::HandsOver => self.retire(),
            Phase::Ends => self.begin_end(),
        }
    }

    fn retire(&mut self) {
        self.close_listeners();
        self.context.links.close_idle();
        let options = &self.context.options;
        let longest = options.grace_ms.max(options.helper_ms + LATE);
        self.ends_at = self.context.now + longest;
        if let Some(heir) = self.arrivals.heir() {
            heir.remind(self.context.remembered.give());
        }
        self.leaving = 0..self.connections.capacity();
    }

    /// Has some of the connections leave that were there when the phase changed: they go to another loop, or end. One with
    /// an event leaves before its turn. An idle one that cannot go on elsewhere is closed, unless a request is on its way
    /// already, which is answered.
    pub(super) fn leave_in_pieces(&mut self) {
        for _ in 0..MOVED {
            let Some(key) = self.leaving.next() else {
                return;
            };
            let Some((id, connection)) = self.connections.get_mut(key) else {
                continue;
            };
            let id = *id;
            match connection.is_idle() && self.context.ends(connection.site()) {
                true => {
                    connection.readable = true;
                    self.drive(key, id);
                }
                false => self.settle(key, id, Next::Wait),
            }
        }
    }

    /// Gives the connection away if another loop can go on with it, or closes it if it has nothing left to do. True: it
    /// is not here any more.
    pub(super) fn part(&mut self, key: usize) -> bool {
        let Some((_, connection)) = self.connections.get(key) else {
            return true;
        };
        let heir = self.context.heir(connection.site());
        match heir {
            Some(site) if self.can_give(connection) => self.give(key, site),
            None if self.context.phase != Phase::Serves && connection.is_idle() => self.close(key),
            _ => return false,
        }
        true
    }

    /// No helper works for it, and the other loop can go on with its upstream.
    fn can_give(&self, connection: &Connection) -> bool {
        let links = &self.context.links;
        let upstream = connection.link().map(|link| links.endpoint(link));
        let heirs = self.context.shared.heirs.get();
        let is_known = |endpoint: &_| heirs.is_some_and(|heirs| heirs.reach.has_kind_of(endpoint));
        if connection.process().is_some() && !is_known(&Endpoint::Application) {
            return false;
        }
        !connection.is_bound() && upstream.is_none_or(is_known)
    }

    fn give(&mut self, key: usize, site: Site) {
        let Some((_, mut connection)) = self.connections.try_remove(key) else {
            return;
        };
        let _ = rustix::event::epoll::delete(&self.epoll, connection.socket());
        if let Some(process) = connection.process() {
            self.context.queues.ignore(process);
            if let Some(bridge) = connection.bridge() {
                let _ = rustix::event::epoll::delete(&self.epoll, bridge.own());
            }
            subtract(&self.context.counts().lent, 1);
        }
        self.context.pace.open -= usize::from(connection.is_handshaking());
        subtract(&self.context.counts().connections, 1);
        let link = connection.take_link();
        let link = link.map(|link| self.context.links.give(link));
        if let Some(heir) = self.arrivals.heir() {
            heir.put(Moved {
                connection,
                site,
                link,
            });
        }
    }

    /// Some of them; the loop does not sleep while there are more.
    pub(super) fn take_arrivals(&mut self) {
        if !self.arrivals.begin_taking() {
            return;
        }
        let arrivals = std::sync::Arc::clone(&self.arrivals);
        while let Some(remembered) = arrivals.take_remembered() {
            if let Some(passwords) = &self.context.shared.passwords {
                let (own, now) = (&mut self.context.remembered, self.context.now);
                own.take(remembered, now, |version| passwords.has(version));
            }
        }
        for _ in 0..MOVED {
            let Some(moved) = arrivals.take() else {
                return;
            };
            let Moved {
                mut connection,
                site,
                link,
            } = moved;
            let (key, id) = (self.connections.vacant_key(), self.new_id());
            if let Some(link) = link {
                let owner = (key, id);
                connection.put_link(self.context.links.adopt(link, owner).ok());
            }
            if connection.process().is_some() {
                add(&self.context.counts().lent, 1);
            }
            connection.arrive(site, id, self.context.shared.limits.as_ref());
            self.context.pace.open += usize::from(connection.is_handshaking());
            if self.insert(id, connection).is_some() {
                self.drive(key, id);
            }
        }
    }

    /// No connection can come any more, and those that are there are done or out of time.
    pub(super) fn is_over(&self) -> bool {
        if self.context.phase == Phase::Serves || !self.arrivals.is_complete() {
            return false;
        }
        if !self.arrivals.is_empty() || !self.leaving.is_empty() {
            return false;
        }
        self.connections.is_empty() || self.context.now >= self.ends_at
    }

    /// Those that are left are cut off.
    pub(super) fn leave(&mut self) {
        for (key, (_, connection)) in &mut self.connections {
            connection.release(key, &mut self.context);
        }
        self.context.pace.open = 0;
        let counts = &self.context.shared.counts[self.context.number];
        subtract(&counts.connections, self.connections.len() as u64);
        self.context.pace.turn(counts);
        subtract(&counts.links, self.context.links.counted as u64);
        let (before, _) = self.context.queues.count();
        subtract(&counts.waiting, before as u64);
    }

    /// Accepts no more. Where no other loop goes on, the connections that wait in the queue of a socket are accepted first:
    /// closing it would reset them.
    fn close_listeners(&mut self) {
        self.paused_until = None;
        for listener in &self.listeners {
            // It may be out already.
            let _ = rustix::event::epoll::delete(&self.epoll, &listener.socket);
        }
        for listener in std::mem::take(&mut self.listeners) {
            if self.context.ends(listener.site) {
                self.accept_all(&listener);
            }
        }
    }

    /// No further connection is accepted, and those that are there end with their requests.
    fn begin_end(&mut self) {
        self.close_listeners();
        self.ends_at = self.context.now + self.context.options.grace_ms;
        self.leaving = 0..self.connections.capacity();
    }
}
