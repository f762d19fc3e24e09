// SPDX-License-Identifier: MIT OR Apache-2.0
//! How connections go on when the configuration changes: the loops of the earlier configuration give each of them to a
//! loop of the next one. Sockets, sessions of TLS and answers that are being sent are all in this process, so no client
//! notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crossbeam_queue::SegQueue;

use crate::access::remembered::Remembered;
use crate::connection::Connection;
use crate::context::Site;
use crate::helpers::Inbox;
use crate::sandbox::Reach;
use crate::upstream::links::Link;

/// A connection on its way to another loop.
pub struct Moved {
    pub connection: Connection,
    /// What it is served there.
    pub site: Site,
    /// To the upstream that is answering it.
    pub link: Option<Link>,
}

/// Connections and remembered passwords that loops of earlier configurations have given to a loop.
pub struct Arrivals {
    inbox: Arc<Inbox>,
    queue: SegQueue<Moved>,
    remembered: SegQueue<Remembered>,
    is_complete: AtomicBool,
}

impl Arrivals {
    pub fn new(inbox: Arc<Inbox>) -> Arrivals {
        Arrivals {
            inbox,
            queue: SegQueue::new(),
            remembered: SegQueue::new(),
            is_complete: AtomicBool::new(false),
        }
    }

    pub fn put(&self, moved: Moved) {
        self.queue.push(moved);
        self.inbox.wake();
    }

    pub fn take(&self) -> Option<Moved> {
        self.queue.pop()
    }

    /// Before the connections, which need it.
    pub fn remind(&self, remembered: Remembered) {
        self.remembered.push(remembered);
        self.inbox.wake();
    }

    pub fn take_remembered(&self) -> Option<Remembered> {
        self.remembered.pop()
    }

    /// The loops of all earlier configurations have ended.
    pub fn complete(&self) {
        if !self.is_complete.swap(true, Ordering::Release) {
            self.inbox.wake();
        }
    }

    /// What has not been taken by then will not be followed by more.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    pub fn wake(&self) {
        self.inbox.wake();
    }
}

/// Where the connections of a configuration go on.
pub struct Heirs {
    /// Of the loops of the next configuration.
    pub loops: Vec<Arc<Arrivals>>,
    /// By the place of an address in the earlier configuration: its place in the next one.
    pub sites: Vec<Option<usize>>,
    /// The counters have the same address as before.
    pub has_counts: bool,
    /// What the sandbox of the next loops lets them do with connections to upstreams.
    pub reach: Reach,
}

impl Heirs {
    /// `None`: the next configuration does not listen at this address.
    pub fn site(&self, site: Site) -> Option<Site> {
        match site {
            Site::Files(place) => self.sites.get(place).copied().flatten().map(Site::Files),
            Site::Counts => self.has_counts.then_some(Site::Counts),
        }
    }

    /// Of a loop of the earlier configuration.
    pub fn of_loop(&self, number: usize) -> &Arrivals {
        &self.loops[number % self.loops.len()]
    }
}
