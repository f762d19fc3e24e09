// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits for each client: connections open at once, new connections and requests per second.
//!
//! All loops share one table, of a size that is fixed at the start. It has no locks, so no loop waits for another. A
//! client's entry is free again once the client has no connection and its buckets are full, as then the entry says
//! nothing that a new one would not say.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::client::Client;
use super::networks::Networks;

/// Entries in which a client may be.
const WAYS: usize = 8;
/// Bits of an entry's word that count connections. The others tell whose the entry is.
const OPEN_BITS: u32 = 16;
const MAX_OPEN: u64 = (1 << OPEN_BITS) - 1;

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

/// An entry. The times are those at which a bucket will be full, in nanoseconds since the table's begin.
#[derive(Default)]
struct Entry {
    /// Who, and how many connections are open.
    word: AtomicU64,
    connections_full_at: AtomicU64,
    requests_full_at: AtomicU64,
}

pub struct Limits {
    settings: Settings,
    entries: Box<[Entry]>,
    hasher: RandomState,
    began: Instant,
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
    pub fn new(settings: Settings) -> Arc<Limits> {
        let sets = settings.clients.div_ceil(WAYS).max(1);
        let entries = (0..sets * WAYS).map(|_| Entry::default()).collect();
        Arc::new(Limits {
            settings,
            entries,
            hasher: RandomState::new(),
            began: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Judges a new connection. A peer without an address has no limits.
    pub fn connect(self: &Arc<Limits>, peer: Option<IpAddr>) -> Admission {
        let limited = peer.filter(|peer| !self.settings.exempt.contains(*peer));
        let Some(peer) = limited else {
            return Admission::Exempt;
        };
        self.connect_at(peer, self.now())
    }

    fn connect_at(self: &Arc<Limits>, peer: IpAddr, now: u64) -> Admission {
        let hash = self.hasher.hash_one(Client::of(peer));
        let who = (hash >> OPEN_BITS).max(1);
        let most = self.settings.connections.map_or(MAX_OPEN, u64::from);
        let Some(at) = self.find(hash, who, now) else {
            return Admission::Untracked;
        };
        let entry = &self.entries[at];
        let order = Ordering::Relaxed;
        let one_more = |word: u64| {
            let is_its = word >> OPEN_BITS == who;
            (is_its && word & MAX_OPEN < most).then_some(word + 1)
        };
        match entry.word.fetch_update(order, order, one_more) {
            Ok(_) => {}
            Err(word) if word >> OPEN_BITS == who => return Admission::TooMany,
            // Another loop has just given the entry to another client.
            Err(_) => return Admission::Untracked,
        }
        let place = Place {
            limits: Arc::clone(self),
            at,
        };
        let rate = self.settings.new_connections;
        match rate.is_none_or(|rate| take(&entry.connections_full_at, rate, now)) {
            true => Admission::Counted(place),
            false => Admission::TooFast,
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

impl Place {
    /// Whether the client may ask once more now.
    pub fn request(&self) -> bool {
        self.request_at(self.limits.now())
    }

    fn request_at(&self, now: u64) -> bool {
        let entry = &self.limits.entries[self.at];
        let rate = self.limits.settings.requests;
        rate.is_none_or(|rate| take(&entry.requests_full_at, rate, now))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let word = &self.limits.entries[self.at].word;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn peer(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn limits(connections: Option<u16>, new: Option<Rate>, requests: Option<Rate>) -> Arc<Limits> {
        Limits::new(Settings {
            connections,
            new_connections: new,
            requests,
            ..Settings::default()
        })
    }

    fn counted(admission: Admission) -> Option<Place> {
        match admission {
            Admission::Counted(place) => Some(place),
            _ => None,
        }
    }

    #[test]
    fn a_client_has_so_many_connections() {
        let limits = limits(Some(2), None, None);
        let first = counted(limits.connect_at(peer(1), 0));
        let second = counted(limits.connect_at(peer(1), 0));
        assert!(first.is_some() && second.is_some());
        assert!(matches!(limits.connect_at(peer(1), 0), Admission::TooMany));
        assert!(counted(limits.connect_at(peer(2), 0)).is_some());
        drop(first);
        assert!(counted(limits.connect_at(peer(1), 0)).is_some());
    }

    #[test]
    fn a_bucket_is_full_again_after_its_time() {
        let rate = Rate {
            per_second: 10,
            burst: 3,
        };
        let limits = limits(None, Some(rate), Some(rate));
        let places: Vec<Place> = (0..3)
            .filter_map(|_| counted(limits.connect_at(peer(1), 0)))
            .collect();
        assert_eq!(places.len(), 3);
        assert!(matches!(limits.connect_at(peer(1), 0), Admission::TooFast));
        assert!(counted(limits.connect_at(peer(1), SECOND / 10)).is_some());
        assert!(matches!(
            limits.connect_at(peer(1), SECOND / 10),
            Admission::TooFast
        ));
        // Requests have a bucket of their own, which all connections of the client share.
        let asked = [0, 1, 2, 0].map(|at: usize| places[at].request_at(SECOND));
        assert_eq!(asked, [true, true, true, false]);
        assert!(places[0].request_at(SECOND + SECOND / 10));
        let later = 10 * SECOND;
        let again = (0..5).filter(|_| places[0].request_at(later)).count();
        assert_eq!(again, 3);
    }

    #[test]
    fn a_full_table_lets_new_clients_through_and_keeps_the_old_ones() {
        let limits = Limits::new(Settings {
            connections: Some(1),
            clients: WAYS,
            ..Settings::default()
        });
        let mut places: Vec<Place> = (0..8)
            .filter_map(|number| counted(limits.connect_at(peer(number), 0)))
            .collect();
        assert_eq!(places.len(), WAYS);
        assert!(matches!(
            limits.connect_at(peer(100), 0),
            Admission::Untracked
        ));
        assert!(matches!(limits.connect_at(peer(3), 0), Admission::TooMany));
        places.pop();
        assert!(counted(limits.connect_at(peer(100), 0)).is_some());
    }

    #[test]
    fn who_is_exempt_has_no_limits() {
        let network = crate::access::networks::parse("10.0.0.0/8").expect("a network");
        let limits = Limits::new(Settings {
            connections: Some(1),
            exempt: [network].into_iter().collect(),
            ..Settings::default()
        });
        for _ in 0..3 {
            let peer = Some([10, 1, 2, 3].into());
            assert!(matches!(limits.connect(peer), Admission::Exempt));
            assert!(matches!(limits.connect(None), Admission::Exempt));
        }
    }

    /// Several loops at once: no count is lost.
    #[test]
    fn all_loops_count_together() {
        let limits = limits(Some(5), None, None);
        let admitted = std::thread::scope(|scope| {
            let loops: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for round in 0..2_000 {
                            let _others = counted(limits.connect_at(peer(2 + round % 50), 0));
                        }
                        let mut mine = (0..5).map(|_| counted(limits.connect_at(peer(1), 0)));
                        mine.by_ref().flatten().collect::<Vec<Place>>()
                    })
                })
                .collect();
            let all = loops.into_iter().map(|it| it.join().expect("no panic"));
            all.flatten().collect::<Vec<Place>>()
        });
        assert_eq!(admitted.len(), 5);
        drop(admitted);
        let open = |entry: &Entry| entry.word.load(Ordering::Relaxed) & MAX_OPEN;
        assert_eq!(limits.entries.iter().map(open).sum::<u64>(), 0);
    }

    proptest! {
        /// In any time, no more than the burst and what has come in since.
        #[test]
        fn a_bucket_gives_no_more_than_its_rate(
            per_second in 1u32..1000,
            burst in 1u32..100,
            steps in prop::collection::vec(0u64..SECOND / 10, 1..200),
        ) {
            let (full_at, rate) = (AtomicU64::new(0), Rate { per_second, burst });
            let (mut now, mut taken) = (0, 0);
            for step in steps {
                now += step;
                taken += u64::from(take(&full_at, rate, now));
                let each = SECOND / u64::from(per_second);
                prop_assert!(taken <= u64::from(burst) + now / each);
            }
        }
    }
}
