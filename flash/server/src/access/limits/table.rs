// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients that are counted.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::access::client::Client;

/// Entries in which a client may be.
pub const WAYS: usize = 8;
/// Bits of an entry's word that count connections. The others tell whose the entry is.
const OPEN_BITS: u32 = 16;
pub const MAX_OPEN: u64 = (1 << OPEN_BITS) - 1;

/// An entry. The times are those at which a bucket will be full, in nanoseconds since the table's begin.
#[derive(Default)]
pub struct Entry {
    /// Who, and how many connections are open.
    pub word: AtomicU64,
    pub connections_full_at: AtomicU64,
    pub requests_full_at: AtomicU64,
}

pub struct Table {
    pub entries: Box<[Entry]>,
    pub hasher: RandomState,
    pub began: Instant,
}

pub enum Opened {
    At(usize),
    TooMany,
    NoRoom,
}

impl Table {
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts one more connection of a client, which has `most` at most.
    pub fn open(&self, peer: IpAddr, most: u64, now: u64) -> Opened {
        let hash = self.hasher.hash_one(Client::of(peer));
        let who = (hash >> OPEN_BITS).max(1);
        let Some(at) = self.find(hash, who, now) else {
            return Opened::NoRoom;
        };
        let order = Ordering::Relaxed;
        let one_more = |word: u64| {
            let is_its = word >> OPEN_BITS == who;
            (is_its && word & MAX_OPEN < most).then_some(word + 1)
        };
        match self.entries[at].word.fetch_update(order, order, one_more) {
            Ok(_) => Opened::At(at),
            Err(word) if word >> OPEN_BITS == who => Opened::TooMany,
            // Another loop has just given the entry to another client.
            Err(_) => Opened::NoRoom,
        }
    }

    /// The client's entry, or one that is free and becomes the client's.
    fn find(&self, hash: u64, who: u64, now: u64) -> Option<usize> {
        let sets = (self.entries.len() / WAYS) as u64;
        let first = (hash % sets) as usize * WAYS;
        let places = first..first + WAYS;
        let order = Ordering::Relaxed;
        let is_its = |at: &usize| self.entries[*at].word.load(order) >> OPEN_BITS == who;
        if let Some(at) = places.clone().find(is_its) {
            return Some(at);
        }
        for at in places {
            let entry = &self.entries[at];
            let word = entry.word.load(order);
            let is_free = word & MAX_OPEN == 0
                && entry.connections_full_at.load(order) <= now
                && entry.requests_full_at.load(order) <= now;
            if is_free {
                let taken = entry
                    .word
                    .compare_exchange(word, who << OPEN_BITS, order, order);
                // Another loop may have taken it, for the same client even.
                if taken.map_or_else(|word| word >> OPEN_BITS == who, |_| true) {
                    return Some(at);
                }
            }
        }
        None
    }
}
