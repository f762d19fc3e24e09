// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many descriptors there can be, and room for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use rustix::event::{eventfd, EventfdFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Open files that are no connection's: listening sockets, logs, what helpers have at hand.
pub const OTHER_FILES: usize = 256;
/// And those of each loop, under two configurations: what it waits for, its listening sockets, and connections to the counters.
const OF_LOOP: usize = 32;
/// Descriptors that there is room for from the start, 8 bytes each.
const WIDEST: usize = 1 << 18;

/// Has the kernel make its table of descriptors large enough for a server. A table that threads share grows only when
/// no processor uses the old one any more. The thread whose descriptor found no place waits for that, some milliseconds,
/// and it may be a loop. `open_files`: that are no connection's.
pub fn make_room(connections: usize, open_files: usize) {
    let files = connections * 2 + open_files + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let last = files.min(WIDEST).min(limit).saturating_sub(1);
    let last = i32::try_from(last).unwrap_or(i32::MAX);
    if let Ok(file) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&file, last);
    }
}

/// Raises the limit of open files as far as it goes, and returns it.
pub fn raise_limit() -> usize {
    let resource = Resource::Nofile;
    let limit = getrlimit(resource);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(resource, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    })
}

/// How many connections the limit of open files leaves room for beside files that are kept open. For two of them, one
/// may be asking: it has a file open, or a connection to an upstream.
pub fn room_for_connections(loops: usize, open_files: usize) -> usize {
    let files = raise_limit().saturating_sub(others(loops, open_files));
    (files / 3 * 2).max(1)
}

fn others(loops: usize, open_files: usize) -> usize {
    OTHER_FILES + loops * OF_LOOP + open_files
}

/// Descriptors that requests may have open beside those of their connections, in all loops and under all configurations.
/// A request that finds none is answered with 503, so nothing that is under way finds none.
pub struct Spare {
    most: AtomicUsize,
    taken: AtomicUsize,
}

impl Default for Spare {
    fn default() -> Spare {
        Spare {
            most: AtomicUsize::new(usize::MAX),
            taken: AtomicUsize::new(0),
        }
    }
}

impl Spare {
    /// Of these connections and files all may be open from now on.
    pub fn leave(&self, connections: usize, loops: usize, open_files: usize) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(others(loops, open_files));
        // Also if there may be more connections than there is room for, as where nothing checks a configuration.
        let most = room.saturating_sub(connections).max(room / 3);
        self.most.store(most.max(1), Ordering::Relaxed);
    }

    /// `None`: there are not so many.
    pub fn take(self: &Arc<Spare>, count: usize) -> Option<Taken> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |taken: usize| Some(taken + count).filter(|taken| *taken <= most);
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, more).ok()?;
        Some(Taken {
            spare: Arc::clone(self),
            count,
        })
    }
}

/// Descriptors that are open, or about to be. They count until it is dropped.
pub struct Taken {
    spare: Arc<Spare>,
    count: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.spare.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let spare = Arc::new(Spare::default());
        spare.most.store(1, Ordering::Relaxed);
        let one = spare.take(1).expect("there is one");
        assert!(spare.take(1).is_none());
        drop(one);
        assert!(spare.take(2).is_none());
        assert!(spare.take(1).is_some());
    }

    #[test]
    fn requests_have_a_third_of_the_room_in_any_case() {
        let spare = Arc::new(Spare::default());
        spare.leave(1 << 40, 1, 0);
        let most = spare.most.load(Ordering::Relaxed);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(most >= (limit as usize).saturating_sub(others(1, 0)) / 3);
        spare.leave(1, 1, 1 << 40);
        assert_eq!(spare.most.load(Ordering::Relaxed), 1);
    }
}
