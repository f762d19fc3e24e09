// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lookups of a client helpers do beside those of others. A client's window grows with each name that helpers
//! find for it, and halves with each name that does not exist. Its lookups beyond the window are done by a few helpers of
//! their own, so a scanner occupies one helper of those that bring files, however many connections it opens.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::access::client::Client;
use crate::files::Lookup;

/// Windows of clients. Two clients that share one by chance have one window together.
const PLACES: usize = 1 << 14;
/// Lookups at once of a client that is not known yet.
const FIRST: u32 = 16;
/// And of one for which every name was found.
const MOST: u32 = 1024;
/// The window is above these bits, and the lookups that are under way are in them.
const OPEN_BITS: u32 = 16;

pub struct Windows {
    /// A window of 0 is that of a client that is not known yet.
    places: Box<[AtomicU32]>,
    hasher: RandomState,
}

/// The client for which a name is looked up.
pub struct Asker {
    windows: Arc<Windows>,
    at: usize,
    /// So many of the names that are looked for are what was asked for.
    asked: usize,
    /// The lookup is within the client's window, and counts until this is dropped.
    is_within: bool,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            places: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Windows {
    /// Clients without an address count as one. `asked`: so many of the names that are looked for are what was asked for;
    /// that those behind them exist, which answer for all others, says nothing.
    pub fn asker(self: &Arc<Windows>, peer: Option<IpAddr>, asked: usize) -> Asker {
        let hash = self.hasher.hash_one(peer.map(Client::of));
        Asker {
            windows: Arc::clone(self),
            at: (hash % PLACES as u64) as usize,
            asked,
            is_within: false,
        }
    }
}

impl Asker {
    /// Takes a place in the client's window. False: there is none.
    pub fn enter(&mut self) -> bool {
        let one_more = |word: u32| {
            let (window, open) = parts(word);
            (open < window).then_some(word + 1)
        };
        self.is_within = self.update(one_more);
        self.is_within
    }

    /// A helper has looked for the names. `at`: which of them it was.
    pub fn learn(&self, at: usize, lookup: &Lookup) {
        self.update(|word| {
            let (window, open) = parts(word);
            let window = match lookup {
                Lookup::Found(_) if at < self.asked => (window + 1).min(MOST),
                Lookup::Found(_) | Lookup::Missing => (window / 2).max(1),
                Lookup::Forbidden | Lookup::Busy | Lookup::Failed(_) => return None,
            };
            Some(window << OPEN_BITS | open)
        });
    }

    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        let order = Ordering::Relaxed;
        let place = &self.windows.places[self.at];
        place.fetch_update(order, order, change).is_ok()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if self.is_within {
            self.windows.places[self.at].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The window, and how many lookups are under way in it.
fn parts(word: u32) -> (u32, u32) {
    let window = match word >> OPEN_BITS {
        0 => FIRST,
        window => window,
    };
    (window, word & ((1 << OPEN_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(windows: &Arc<Windows>, address: &str) -> Vec<Asker> {
        let peer = Some(address.parse().expect(address));
        let asker = || {
            let mut asker = windows.asker(peer, 1);
            asker.enter().then_some(asker)
        };
        std::iter::from_fn(asker).collect()
    }

    #[test]
    fn a_window_follows_what_is_found() {
        let windows = Arc::new(Windows::default());
        let all = entered(&windows, "2001:db8::1");
        assert_eq!(all.len(), FIRST as usize);
        // It is the client's, which has all addresses of its network.
        assert!(entered(&windows, "2001:db8::2").is_empty());
        drop(all);
        let asker = windows.asker(Some("2001:db8::3".parse().expect("an address")), 1);
        for _ in 0..20 {
            asker.learn(0, &Lookup::Missing);
        }
        asker.learn(0, &Lookup::Busy);
        assert_eq!(entered(&windows, "2001:db8::1").len(), 1);
        let place = tempfile::tempdir().expect("a directory");
        let root = crate::files::Root::open(place.path()).expect("it is there");
        let found = root.open_waiting(b"");
        for _ in 0..MOST * 2 {
            asker.learn(0, &found);
        }
        assert_eq!(entered(&windows, "2001:db8::1").len(), MOST as usize);
        asker.learn(0, &Lookup::Missing);
        assert_eq!(entered(&windows, "2001:db8::1").len(), MOST as usize / 2);
        // What answers for all names that do not exist.
        asker.learn(1, &found);
        assert_eq!(entered(&windows, "2001:db8::1").len(), MOST as usize / 4);
    }
}
