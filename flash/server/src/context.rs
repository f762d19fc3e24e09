//! The state that connections share: of their loop, and of the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::access::limits::{self, Limits};
use crate::access::passwords::{self, Passwords};
use crate::access::remembered::Remembered;
use crate::counts::{self, Counts};
use crate::helpers::pools::Pools;
use crate::helpers::{Inbox, Pool};
use crate::log::Log;
use crate::pace::Pace;
use crate::sandbox;
use crate::sites::Hosts;

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
    /// For the requests that are there when the server ends.
    pub grace_ms: u64,
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
            linger_ms: 2_000,
            grace_ms: 30_000,
            passwords: passwords::Settings::default(),
            limits: limits::Settings::default(),
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

/// Of all loops.
pub struct Shared {
    pub hosts: Vec<Hosts>,
    pub helpers: Pools,
    /// `None`: no password is asked for.
    pub passwords: Option<Passwords>,
    /// `None`: clients have no limits.
    pub limits: Option<Arc<Limits>>,
    pub log: Option<Arc<Log>>,
    pub counts: Vec<Counts>,
    /// What is in force in all threads that have clients' work.
    pub sandbox: OnceLock<sandbox::Status>,
    pub ends: AtomicBool,
}

impl Shared {
    pub fn counts_page(&self) -> String {
        let mut page = counts::page(self.counts.iter());
        for pair in self.helpers.all() {
            for (pool, helpers) in [("names", &pair.names), ("missing", &pair.missing)] {
                let labels = format!("pool=\"{pool}\",device=\"{}\"", pair.device);
                pool_rows(&mut page, &labels, helpers);
            }
        }
        if let Some(passwords) = &self.passwords {
            pool_rows(&mut page, "pool=\"passwords\"", &passwords.pool);
        }
        if let Some(sandbox::Status { landlock, seccomp }) = self.sandbox.get() {
            for (part, status) in [("landlock", landlock), ("seccomp", seccomp)] {
                let is_on = u64::from(status.is_on());
                let labels = format!("part=\"{part}\"");
                counts::row(&mut page, "flash_sandbox", &labels, is_on);
            }
        }
        page
    }
}

fn pool_rows(page: &mut String, labels: &str, pool: &Pool) {
    let counts = &pool.counts;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    for (name, value) in [
        ("flash_helper_threads", pool.threads() as u64),
        ("flash_helper_threads_most", load(&counts.most_threads)),
        ("flash_helper_jobs_total", load(&counts.jobs)),
        ("flash_helper_jobs_joined_total", load(&counts.joined)),
        ("flash_helper_jobs_waiting", pool.waiting() as u64),
        ("flash_helper_jobs_refused_total", load(&counts.refused)),
        ("flash_helper_busy_ns_total", load(&counts.busy_ns)),
    ] {
        counts::row(page, name, labels, value);
    }
}

/// Of one loop.
pub struct Context {
    pub shared: Arc<Shared>,
    pub options: Arc<Options>,
    pub inbox: Arc<Inbox>,
    /// For what is received, and for files that are copied.
    pub buffer: Vec<u8>,
    /// Milliseconds since the loop began.
    pub now: u64,
    pub date: String,
    pub log_time: String,
    pub pace: Pace,
    pub remembered: Remembered,
    pub is_ending: bool,
    pub number: usize,
}

impl Context {
    pub fn counts(&self) -> &Counts {
        &self.shared.counts[self.number]
    }
}
