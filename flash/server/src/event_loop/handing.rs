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
        self.end_idle();
        let all = self.connections.iter();
        let all: Vec<(usize, u32)> = all.map(|(key, (id, _))| (key, *id)).collect();
        for (key, id) in all {
            self.settle(key, id, Next::Wait);
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

    pub(super) fn take_arrivals(&mut self) {
        let arrivals = std::sync::Arc::clone(&self.arrivals);
        while let Some(remembered) = arrivals.take_remembered() {
            if let Some(passwords) = &self.context.shared.passwords {
                let (own, now) = (&mut self.context.remembered, self.context.now);
                own.take(remembered, now, |version| passwords.has(version));
            }
        }
        while let Some(moved) = arrivals.take() {
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
    pub(super) fn is_over(&mut self) -> bool {
        if self.context.phase == Phase::Serves || !self.arrivals.is_complete() {
            return false;
        }
        self.take_arrivals();
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

    /// Idle connections that cannot go on elsewhere: a request that is on its way already is answered, and `settle`
    /// closes those that stay idle.
    pub(super) fn end_idle(&mut self) {
        let context = &self.context;
        let all = self.connections.iter();
        let idle = all.filter(|(_, (_, it))| it.is_idle() && context.ends(it.site()));
        let idle: Vec<(usize, u32)> = idle.map(|(key, (id, _))| (key, *id)).collect();
        for (key, id) in idle {
            if let Some((_, connection)) = self.connections.get_mut(key) {
                connection.readable = true;
            }
            self.drive(key, id);
        }
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
        self.end_idle();
    }
}
