//! The broker's loop: a single thread that never waits for a client.
//!
//! Every client has one connection, and ends with it: when no process holds the client's side any more. A
//! client that sends something invalid, sends nothing in time, or does not read its answer is disconnected.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::MapHandle;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{self, sockopt, SockFlag};

use super::account::{self, Account};
use super::cpu::{self, Budget, Pace};
use super::listener::{listen, raise_descriptor_limit, refuse};
use super::loading::Loadings;
use super::log::Log;
use super::owners::Owners;
use super::peer::Peer;
use super::presence::Presence;
use super::protocol::{RunWish, Wish};
use super::quota::{Limits, Quota};
use super::run_limits::{Given, RunLimits};
use super::shared::{Kind, Shared, CLIENT_THREADS};
use super::turns::in_turns;
use crate::options::Tap;
use crate::symbols::Symbols;

mod kinds;
mod requests;
mod runs;
mod tidy;

/// A broker's options.
#[derive(Debug, Clone)]
pub struct Options {
    pub socket: PathBuf,
    pub limits: Limits,
    /// The file that lists which users have which subordinate user ids.
    pub subordinates: PathBuf,
}

/// A connection that has not become a client by then is closed.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
/// Connections accepted at once. Limited, so that a flood of them does not starve existing clients.
const ACCEPT_AT_ONCE: usize = 64;
/// Requests of one user that are served before the other users have their turn.
const REQUESTS_AT_ONCE: usize = 8;
/// Probes are unloaded when no client has used them for this time. The usual ones, which are likely to be
/// requested again soon, are kept longer.
const UNUSED: Duration = Duration::from_secs(30);
const USUAL_UNUSED: Duration = Duration::from_secs(600);
/// CPU time for refusing connections at once; after that, they are refused at the pace of one user's share,
/// so that a flood has to wait.
const REFUSALS_AT_ONCE: Duration = Duration::from_millis(20);
const USUAL: Kind = Kind {
    tap: Tap::Kernel,
    sleeps: true,
    irq: false,
};
/// Cached stacks are dropped at most this often.
const FORGET: Duration = Duration::from_secs(10);

/// A listening broker. Dropping it unloads the probes.
pub struct Broker {
    presence: Presence,
    socket: PathBuf,
    listener: OwnedFd,
    /// Closed for a moment when there are no free descriptors, to be able to refuse a waiting connection.
    spare: Option<File>,
    quota: Quota,
    account: Arc<Account>,
    budget: Arc<Budget>,
    owners: Owners,
    log: Arc<Log>,
    sessions: Vec<Shared>,
    loadings: Loadings,
    refusals: Pace,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    held: Vec<Held>,
    runs: Vec<Run>,
    /// Maps that ended runs gave to their clients and that are still held by some process.
    held_of_runs: Vec<Given>,
    symbols: Symbols,
    forgot_shapes: Instant,
}

/// Slots of a client that has left, until no process holds them.
struct Held {
    owner: u32,
    map: u32,
    slots: u32,
    _memory: account::Share,
}

struct Connection {
    socket: OwnedFd,
    peer: Peer,
    /// The user for whom it counts.
    owner: u32,
    since: Instant,
    stage: Stage,
}

/// A session for one command, and the thread that serves it.
struct Run {
    owner: u32,
    socket: OwnedFd,
    terms: Arc<RunLimits>,
    thread: JoinHandle<()>,
}

enum Stage {
    Greeting,
    /// The nonce that it was sent.
    Asked(u64),
    /// Its probes are being loaded.
    Waits(Wish),
    Client {
        kind: Kind,
        client: u32,
        map: MapHandle,
        slots_id: u32,
        slots: u32,
        memory: account::Share,
    },
}

/// How a connection continues.
enum Next {
    Stay(Stage),
    Over,
    /// It gets a session of its own.
    Run(RunWish),
}

impl Broker {
    /// Loads the probes for the usual wish, and starts to listen.
    pub fn start(options: &Options) -> Result<Broker> {
        raise_descriptor_limit();
        let limits = Limits {
            threads_per_client: options.limits.threads_per_client.min(CLIENT_THREADS),
            ..options.limits
        };
        let symbols = Symbols::default();
        symbols.kernel(0); // reads the kernel's symbols now, not while a client waits
        let account = Account::new(limits.memory);
        let before = cpu::of_thread();
        let sessions = vec![Shared::open(USUAL, &limits, &account, None)?];
        let to_load = cpu::of_thread().saturating_sub(before);
        let at_once = Limits::CPU_AT_ONCE.max(to_load * Limits::CPU_LOADS);
        let share = cpu::Share {
            rate: f64::from(limits.cpu_percent) / 100.0,
            burst: at_once.as_secs_f64(),
        };
        let now = Instant::now();
        let refusals = cpu::Share {
            burst: REFUSALS_AT_ONCE.as_secs_f64(),
            ..share
        };
        Ok(Broker {
            presence: Presence::begin()?,
            listener: listen(&options.socket)?,
            socket: options.socket.clone(),
            spare: Some(File::open("/dev/null")?),
            quota: Quota::new(limits),
            account,
            budget: Arc::new(Budget::new(share)),
            owners: Owners::of(&options.subordinates),
            log: Arc::new(Log::of_standard_error()),
            sessions,
            loadings: Loadings::default(),
            refusals: Pace::new(refusals, now),
            connections: BTreeMap::new(),
            next_connection: 0,
            held: Vec::new(),
            runs: Vec::new(),
            held_of_runs: Vec::new(),
            symbols,
            forgot_shapes: now,
        })
    }

    /// Serves until `stop` is set; a signal that sets it interrupts the wait.
    pub fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut next_tick = Instant::now() + TICK;
        while !stop.load(Ordering::Relaxed) {
            let wait = next_tick.saturating_duration_since(Instant::now());
            let (is_called, ready) = self.wait(wait)?;
            for number in in_turns(&ready, REQUESTS_AT_ONCE) {
                self.listen_to(number);
            }
            self.finish_loading();
            if is_called {
                self.take_in();
            }
            if Instant::now() >= next_tick {
                self.tick()?;
                next_tick = Instant::now() + TICK;
            }
        }
        Ok(())
    }

    /// Waits for requests. Returns whether new connections wait, and which existing ones have sent
    /// something, with the users for whom they count.
    fn wait(&self, limit: Duration) -> Result<(bool, Vec<(u64, u32)>)> {
        let interest = PollFlags::POLLIN;
        // Existing clients are served while a flood of connections waits.
        let pause = self.refusals.wait(Instant::now());
        let (limit, door) = match pause.is_zero() {
            true => (limit, interest),
            false => (limit.min(pause), PollFlags::empty()),
        };
        let mut polled = vec![PollFd::new(self.listener.as_fd(), door)];
        polled.extend(
            self.connections
                .values()
                .map(|connection| PollFd::new(connection.socket.as_fd(), interest)),
        );
        let ends = self.loadings.ends();
        polled.extend(ends.map(|end| PollFd::new(end, interest)));
        let limit = u16::try_from(limit.as_millis() + 1).unwrap_or(u16::MAX);
        match poll(&mut polled, PollTimeout::from(limit)) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok((false, Vec::new())),
            Err(error) => return Err(error).context("cannot wait for clients"),
        }
        let is_ready = |polled: &PollFd| polled.revents().is_some_and(|events| !events.is_empty());
        let ready = self
            .connections
            .iter()
            .zip(&polled[1..])
            .filter(|(_, polled)| is_ready(polled))
            .map(|((number, connection), _)| (*number, connection.owner))
            .collect();
        Ok((is_ready(&polled[0]), ready))
    }

    fn take_in(&mut self) {
        for _ in 0..ACCEPT_AT_ONCE {
            if !self.refusals.wait(Instant::now()).is_zero() {
                return;
            }
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let before = cpu::of_thread();
            match socket::accept4(self.listener.as_raw_fd(), flags) {
                // SAFETY: accept returned a new descriptor that nothing else owns.
                Ok(fd) => self.meet(unsafe { OwnedFd::from_raw_fd(fd) }, before),
                Err(Errno::EMFILE | Errno::ENFILE) => {
                    // Left in the queue, it would wake the loop again and again.
                    self.spare = None;
                    if let Ok(fd) = socket::accept4(self.listener.as_raw_fd(), flags) {
                        // SAFETY: as above.
                        refuse(
                            &unsafe { OwnedFd::from_raw_fd(fd) },
                            "the broker has no descriptors left",
                        );
                    }
                    self.spare = File::open("/dev/null").ok();
                    let spent = cpu::of_thread().saturating_sub(before);
                    self.refusals.charge(spent, Instant::now());
                }
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    /// Accepts a connection at its user's expense, who has taken CPU time since `before`. Connections that
    /// are refused are also charged to the common pace.
    fn meet(&mut self, socket: OwnedFd, before: Duration) {
        let (owner, stays) = match Peer::of(socket.as_fd()) {
            Ok(peer) => {
                let owner = self.owners.owner(peer.uid);
                (Some(owner), self.welcome(socket, peer, owner))
            }
            Err(_) => (None, false), // it has gone
        };
        let (spent, now) = (cpu::of_thread().saturating_sub(before), Instant::now());
        if let Some(owner) = owner {
            self.budget.charge(owner, spent, now);
        }
        if !stays {
            self.refusals.charge(spent, now);
        }
    }

    /// Registers a connection; returns whether it may stay.
    fn welcome(&mut self, socket: OwnedFd, peer: Peer, owner: u32) -> bool {
        let now = Instant::now();
        if let Err(refusal) = self.quota.connect(owner, now) {
            self.refuse(&socket, &peer, refusal);
            return false;
        }
        let wait = self.budget.wait(owner, now);
        if !wait.is_zero() {
            self.refuse(&socket, &peer, &Budget::refusal(wait));
            self.quota.disconnect(owner);
            return false;
        }
        if socket::setsockopt(&socket, sockopt::PassCred, &true).is_err() {
            self.quota.disconnect(owner);
            return false;
        }
        let connection = Connection {
            socket,
            peer,
            owner,
            since: now,
            stage: Stage::Greeting,
        };
        self.connections.insert(self.next_connection, connection);
        self.next_connection += 1;
        true
    }

    fn refuse(&self, socket: &OwnedFd, peer: &Peer, why: &str) {
        self.log.refused(peer.uid, peer.pid, why);
        refuse(socket, why);
    }

    /// Numbers of the broker's objects, for monitoring the broker.
    pub fn counts(&self) -> HashMap<&'static str, usize> {
        let attached = self.sessions.iter().filter(|shared| shared.is_attached());
        HashMap::from([
            ("connections", self.connections.len()),
            ("sessions", self.sessions.len()),
            ("attached", attached.count()),
            ("held", self.held.len() + self.held_of_runs.len()),
            ("runs", self.runs.len()),
            ("memory", self.account.given_out() as usize),
        ])
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        for run in &self.runs {
            let _ = socket::shutdown(run.socket.as_raw_fd(), socket::Shutdown::Both);
        }
        self.end_runs(|_| true);
    }
}
