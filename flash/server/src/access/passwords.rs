// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of passwords, which take milliseconds of a CPU by design. Threads of their own do them, with a low priority,
//! from a queue of their own, so they delay no loop and no helper that brings files.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;

use rustix::process::setpriority_process;

use super::check::{Check, Place};
use super::client::Client;
use super::users::{UserFile, Users};
use crate::helpers::{self, Device, Job, Pool};
use crate::http::credentials::Credentials;

/// Counters of clients' checks. Two clients that share one by chance share its limit.
const PLACES: usize = 4096;
/// The priority of the threads: any other thread that wants the CPU gets ten times as much of it.
const NICE: i32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub threads: usize,
    /// Checks that wait.
    pub queue: usize,
    /// Checks of one client that wait or are being done.
    pub per_client: usize,
    pub remember_ms: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            threads: (cpus / 2).max(1),
            queue: 64,
            per_client: 4,
            remember_ms: 300_000,
        }
    }
}

/// Who checks passwords.
pub struct Passwords {
    pub pool: Arc<Pool>,
    pub files: Vec<Arc<UserFile>>,
    places: Arc<[AtomicU16]>,
    hasher: RandomState,
    per_client: u16,
}

/// Why a check has not begun.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The client has as many as it may have.
    Client,
    Queue,
}

impl Passwords {
    /// `prepare` is called in the first thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        settings: Settings,
        files: Vec<Arc<UserFile>>,
        counts: Arc<helpers::Counts>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Passwords> {
        let first = move || {
            // It is the thread's own, and those that it starts have it, too.
            let _ = setpriority_process(None, NICE);
            prepare();
        };
        let Settings { threads, queue, .. } = settings;
        Ok(Passwords {
            files,
            pool: Pool::start(
                "flash-password",
                threads,
                queue,
                Device::default(),
                counts,
                first,
            )?,
            places: (0..PLACES).map(|_| AtomicU16::new(0)).collect(),
            hasher: RandomState::new(),
            per_client: u16::try_from(settings.per_client).unwrap_or(u16::MAX),
        })
    }

    /// The place for one more check of a client; none if it has too many. Clients without an address count as one.
    pub fn admit(
        &self,
        peer: Option<IpAddr>,
        users: Arc<Users>,
        credentials: Credentials,
    ) -> Result<Check, Refused> {
        let hash = self.hasher.hash_one(peer.map(Client::of));
        let at = (hash % PLACES as u64) as usize;
        let one_more = |count: u16| (count < self.per_client).then_some(count + 1);
        let order = Ordering::Relaxed;
        match self.places[at].fetch_update(order, order, one_more) {
            Ok(_) => Ok(Check {
                users,
                credentials,
                place: Place {
                    places: Arc::clone(&self.places),
                    at,
                },
            }),
            Err(_) => Err(Refused::Client),
        }
    }

    /// A file has these users.
    pub fn has(&self, version: u64) -> bool {
        let mut files = self.files.iter();
        files.any(|file| file.users.version == version)
    }

    pub fn submit(&self, job: Job) -> Result<(), Refused> {
        match self.pool.submit(job) {
            true => Ok(()),
            false => Err(Refused::Queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_gets_it_back() {
        let settings = Settings {
            per_client: 2,
            ..Settings::default()
        };
        let passwords =
            Passwords::start(settings, Vec::new(), Arc::default(), || {}).expect("a thread");
        let users = Arc::new(Users::parse("").expect("no users"));
        let credentials = Credentials {
            user: "ann".to_string(),
            password: b"secret".to_vec(),
        };
        let admit = |address: &str| {
            let peer = Some(address.parse().expect(address));
            passwords.admit(peer, Arc::clone(&users), credentials.clone())
        };
        let first = admit("2001:db8::1").expect("there is room");
        let _second = admit("2001:db8::2").expect("there is room");
        assert_eq!(admit("2001:db8::3").err(), Some(Refused::Client));
        assert!(!first.run().is_right);
        let _third = admit("2001:db8::3").expect("there is room again");
        // Unless both have one counter by chance, which is rare.
        let others = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
        assert!(others.iter().any(|address| admit(address).is_ok()));
    }
}
