// SPDX-License-Identifier: MIT OR Apache-2.0
//! How connections go on when the configuration changes: the loops of the earlier configuration give each of them to a
//! loop of the next one. Sockets, sessions of TLS and answers that are being sent are all in this process, so no client
//! notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::SegQueue;

use crate::access::remembered::Remembered;
use crate::connection::Connection;
use crate::context::Site;
use crate::helpers::Inbox;
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
    /// Its loop has been woken for what has come since it began to take.
    has_woken: AtomicBool,
    is_complete: AtomicBool,
    /// Of the loop that goes on with the connections of this one.
    heir: OnceLock<Arc<Arrivals>>,
}

impl Arrivals {
    pub fn new(inbox: Arc<Inbox>) -> Arrivals {
        Arrivals {
            inbox,
            queue: SegQueue::new(),
            remembered: SegQueue::new(),
            has_woken: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
            heir: OnceLock::new(),
        }
    }

    pub fn put(&self, moved: Moved) {
        self.queue.push(moved);
        self.wake_once();
    }

    fn wake_once(&self) {
        if !self.has_woken.swap(true, Ordering::AcqRel) {
            self.inbox.wake();
        }
    }

    /// What comes from here on wakes the loop again. False: there is nothing to take.
    pub fn begin_taking(&self) -> bool {
        let has_some = self.has_woken.load(Ordering::Relaxed) || !self.is_empty();
        if has_some {
            // It reads what others have written, so what they had put before is seen from here on.
            self.has_woken.swap(false, Ordering::AcqRel);
        }
        has_some
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.remembered.is_empty()
    }

    pub fn take(&self) -> Option<Moved> {
        self.queue.pop()
    }

    /// Before the connections, which need it.
    pub fn remind(&self, remembered: Remembered) {
        self.remembered.push(remembered);
        self.wake_once();
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

    /// Before its loop hands over.
    pub fn set_heir(&self, heir: Arc<Arrivals>) {
        // A configuration has one that follows it.
        let _ = self.heir.set(heir);
    }

    pub fn heir(&self) -> Option<&Arc<Arrivals>> {
        self.heir.get()
    }

    pub fn wake(&self) {
        self.inbox.wake();
    }
}
