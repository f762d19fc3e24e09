// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that connections share: of their loop, and of the server.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ring::hmac;

use crate::access::limits::{self, Limits};
use crate::access::passwords::{self, Passwords};
use crate::access::remembered::Remembered;
use crate::answer::Segment;
use crate::counts::Counts;
use crate::descriptors::Spare;
use crate::helpers::pools::Pools;
use crate::helpers::Inbox;
use crate::log::{Format, Log};
use crate::pace::Pace;
use crate::sandbox::{self, Reach};
use crate::sending::Sending;
use crate::sites::Hosts;
use crate::stages::{self, LoopState};
use crate::upstream::application::pool::Pool;
use crate::upstream::application::queues::Queues;
use crate::upstream::links::Links;
use crate::upstream::scripts::Scripts;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a request's head.
    pub max_head: usize,
    /// Of one loop.
    pub max_connections: usize,
    /// Handshakes of one loop that have begun and not ended.
    pub max_handshakes: usize,
    /// In milliseconds: for a handshake, for a head to come, between requests, for a helper, for a client to take something, and for
    /// what a client sends behind its last answer.
    pub handshake_ms: u64,
    pub head_ms: u64,
    pub idle_ms: u64,
    pub helper_ms: u64,
    pub send_ms: u64,
    pub linger_ms: u64,
    pub passwords: passwords::Settings,
    pub limits: limits::Settings,
    pub stages: stages::Settings,
    /// For the requests that are there when the server ends.
    pub grace_ms: u64,
    /// Of the access log.
    pub log_format: Format,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_head: 16 << 10,
            max_connections: 10_000,
            max_handshakes: 5_000,
            handshake_ms: 10_000,
            head_ms: 15_000,
            idle_ms: 60_000,
            helper_ms: 30_000,
            send_ms: 60_000,
            linger_ms: 5_000,
            grace_ms: 30_000,
            passwords: passwords::Settings::default(),
            limits: limits::Settings::default(),
            stages: stages::Settings::default(),
            log_format: Format::default(),
        }
    }
}

/// What a listener's connections are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Those of a listening address, by its place in `Shared::hosts`.
    Files(usize),
    /// `/metrics`.
    Counts,
}

/// What the loops of a configuration do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Serves,
    /// They give their connections to the loops of the next configuration.
    HandsOver,
    /// The server ends.
    Ends,
}

/// Where the connections of a configuration go on.
pub struct Heirs {
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
}

/// Of the whole server, under all its configurations.
pub struct Reloads {
    /// The begin of the server's time.
    pub began: Instant,
    pub done: AtomicU64,
    pub refused: AtomicU64,
    /// Earlier configurations whose loops have not ended.
    pub draining: AtomicU64,
}

impl Default for Reloads {
    fn default() -> Reloads {
        Reloads {
            began: Instant::now(),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            draining: AtomicU64::new(0),
        }
    }
}

/// Of all loops of a configuration.
pub struct Shared {
    /// Of what loops remember of passwords.
    pub password_key: hmac::Key,
    pub hosts: Vec<Hosts>,
    pub helpers: Pools,
    /// `None`: no password is asked for.
    pub passwords: Option<Passwords>,
    /// `None`: clients have no limits.
    pub limits: Option<Arc<Limits>>,
    pub log: Option<Arc<Log>>,
    pub counts: Vec<Arc<Counts>>,
    pub reloads: Arc<Reloads>,
    pub spare: Arc<Spare>,
    /// Of programs that answer requests, for who runs the server.
    pub messages: Option<Arc<Log>>,
    /// Starts programs.
    pub scripts: Option<Arc<Scripts>>,
    /// Of the applications.
    pub pools: Vec<Arc<Pool>>,
    /// Of `hosts`.
    pub ports: Vec<u16>,
    /// Of this configuration. `counts` can be of more.
    pub loops: usize,
    /// What is in force in all threads that have clients' work.
    pub sandbox: OnceLock<sandbox::Status>,
    pub heirs: OnceLock<Heirs>,
    /// A [`Phase`].
    pub phase: AtomicU8,
}

impl Shared {
    /// In the server's milliseconds, which all its configurations have in common.
    pub fn now(&self) -> u64 {
        u64::try_from(self.reloads.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serves,
            1 => Phase::HandsOver,
            _ => Phase::Ends,
        }
    }

    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }
}

/// Of one loop.
pub struct Context {
    pub shared: Arc<Shared>,
    pub options: Arc<Options>,
    pub inbox: Arc<Inbox>,
    /// For what is received, and for files that are copied.
    pub buffer: Vec<u8>,
    /// When this turn of the loop began, in the server's milliseconds.
    pub now: u64,
    /// The same as a date, in seconds since 1970 and as answers have it.
    pub second: u64,
    pub date: String,
    /// As the access log has it, and the milliseconds of this second.
    pub log_time: String,
    pub log_ms: u32,
    pub pace: Pace,
    pub remembered: Remembered,
    pub stage: LoopState,
    pub links: Links,
    pub queues: Queues,
    pub phase: Phase,
    pub number: usize,
}

impl Context {
    /// Keeps what a helper has read for an answer, if that is worth it. Returns what is sent.
    pub fn keep(&mut self, sending: &Sending, bytes: Vec<u8>) -> Segment {
        let Some((file, begin)) = sending.untold() else {
            return bytes.into();
        };
        let bytes: Arc<[u8]> = bytes.into();
        let now = (self.now, self.second);
        self.stage.keep_contents(file, begin, &bytes, now);
        bytes.into()
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts[self.number]
    }

    /// What a site's connections are served by the loop that goes on with them.
    pub fn heir(&self, site: Site) -> Option<Site> {
        match self.phase {
            Phase::HandsOver => self.shared.heirs.get()?.site(site),
            Phase::Serves | Phase::Ends => None,
        }
    }

    /// A site's connections end with their requests.
    pub fn ends(&self, site: Site) -> bool {
        self.phase != Phase::Serves && self.heir(site).is_none()
    }
}
