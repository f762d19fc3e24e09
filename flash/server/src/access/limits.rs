// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits for each client: connections open at once, new connections and requests per second.
//!
//! All loops share one table, of a fixed size. It has no locks, so no loop waits for another. It goes on under the next
//! configuration, with other limits perhaps, unless that wants another size. A
//! client's entry is free again once the client has no connection and its buckets are full, as then the entry says
//! nothing that a new one would not say.

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

mod table;

use super::networks::Networks;
use table::{Entry, Opened, Table, MAX_OPEN, WAYS};

/// A bucket of tokens: `per_second` come in, up to `burst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Open at once.
    pub connections: Option<u16>,
    pub new_connections: Option<Rate>,
    pub requests: Option<Rate>,
    /// Clients without limits.
    pub exempt: Networks,
    /// Entries of the table.
    pub clients: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections: None,
            new_connections: None,
            requests: None,
            exempt: Networks::default(),
            clients: 1 << 16,
        }
    }
}

impl Settings {
    pub fn limit_something(&self) -> bool {
        let rates = [self.new_connections, self.requests];
        self.connections.is_some() || rates.iter().any(Option::is_some)
    }
}

/// Those of a configuration.
pub struct Limits {
    settings: Settings,
    table: Arc<Table>,
}

/// An open connection of a client. It counts until it is dropped.
pub struct Place {
    limits: Arc<Limits>,
    at: usize,
}

/// What became of a new connection.
pub enum Admission {
    Counted(Place),
    /// The client has no limits.
    Exempt,
    /// The table has no room, so the client is not limited.
    Untracked,
    TooMany,
    TooFast,
}

impl Limits {
    /// `before`: the limits of the earlier configuration, if it had some.
    pub fn new(settings: Settings, before: Option<&Limits>) -> Arc<Limits> {
        let entries = settings.clients.div_ceil(WAYS).max(1) * WAYS;
        let same = before.filter(|before| before.table.entries.len() == entries);
        let table = match same {
            Some(before) => Arc::clone(&before.table),
            None => Arc::new(Table {
                entries: (0..entries).map(|_| Entry::default()).collect(),
                hasher: RandomState::new(),
                began: Instant::now(),
            }),
        };
        Arc::new(Limits { settings, table })
    }

    /// Judges a new connection. A peer without an address has no limits.
    pub fn connect(self: &Arc<Limits>, peer: Option<IpAddr>) -> Admission {
        let limited = peer.filter(|peer| !self.settings.exempt.contains(*peer));
        let Some(peer) = limited else {
            return Admission::Exempt;
        };
        self.connect_at(peer, self.table.now())
    }

    fn connect_at(self: &Arc<Limits>, peer: IpAddr, now: u64) -> Admission {
        let most = self.settings.connections.map_or(MAX_OPEN, u64::from);
        let at = match self.table.open(peer, most, now) {
            Opened::At(at) => at,
            Opened::TooMany => return Admission::TooMany,
            Opened::NoRoom => return Admission::Untracked,
        };
        let place = Place {
            limits: Arc::clone(self),
            at,
        };
        let full_at = &self.table.entries[at].connections_full_at;
        let rate = self.settings.new_connections;
        match rate.is_none_or(|rate| take(full_at, rate, now)) {
            true => Admission::Counted(place),
            false => Admission::TooFast,
        }
    }

    /// The place of a connection that the earlier configuration has admitted. It stays open, however many its client has.
    pub fn adopt(self: &Arc<Limits>, place: Option<Place>, peer: Option<IpAddr>) -> Option<Place> {
        let peer = peer.filter(|peer| !self.settings.exempt.contains(*peer))?;
        let is_here = |place: &Place| Arc::ptr_eq(&place.limits.table, &self.table);
        if let Some(mut place) = place.filter(is_here) {
            place.limits = Arc::clone(self);
            return Some(place);
        }
        match self.table.open(peer, MAX_OPEN, self.table.now()) {
            Opened::At(at) => Some(Place {
                limits: Arc::clone(self),
                at,
            }),
            Opened::TooMany | Opened::NoRoom => None,
        }
    }
}

impl Place {
    /// Whether the client may ask once more now.
    pub fn request(&self) -> bool {
        self.request_at(self.limits.table.now())
    }

    fn request_at(&self, now: u64) -> bool {
        let entry = &self.limits.table.entries[self.at];
        let rate = self.limits.settings.requests;
        rate.is_none_or(|rate| take(&entry.requests_full_at, rate, now))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let word = &self.limits.table.entries[self.at].word;
        word.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a token, if there is one. Each token takes the time of one away from the bucket, so the bucket is known by when
/// it will be full.
fn take(full_at: &AtomicU64, rate: Rate, now: u64) -> bool {
    let each = 1_000_000_000 / u64::from(rate.per_second.max(1));
    let whole = each * u64::from(rate.burst.max(1));
    let one_less = |full_at: u64| {
        let after = full_at.max(now) + each;
        (after - now <= whole).then_some(after)
    };
    let order = Ordering::Relaxed;
    full_at.fetch_update(order, order, one_less).is_ok()
}

#[cfg(test)]
mod tests;
