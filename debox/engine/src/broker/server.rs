//! The broker's loop: a single thread that never waits for a client.
//!
//! Every client has one connection, and ends with it: when no process holds the client's side any more. A
//! client that sends something invalid, sends nothing in time, or does not read its answer is disconnected.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::MapHandle;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{self, sockopt, MsgFlags, SockFlag};

use super::account::{self, Account};
use super::channel;
use super::cpu::{self, Budget, Pace};
use super::listener::{listen, raise_descriptor_limit, refuse, reply_to};
use super::loading::Loadings;
use super::log::Log;
use super::owners::Owners;
use super::peer::Peer;
use super::presence::Presence;
use super::protocol::{self, FrameText, Reply, Request, RunWish, Wish};
use super::quota::{Limits, Quota};
use super::run;
use super::run_limits::{Given, RunLimits};
use super::shared::{find_stack, mark_gone, slots_memory, Kind, Shared, CLIENT_THREADS};
use super::turns::in_turns;
use crate::kernel::objects;
use crate::options::Tap;
use crate::random;
use crate::symbols::Symbols;

mod kinds;

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
            match socket::accept4(self.listener.as_raw_fd(), flags) {
                // SAFETY: accept returned a new descriptor that nothing else owns.
                Ok(fd) => self.meet(unsafe { OwnedFd::from_raw_fd(fd) }),
                Err(Errno::EMFILE | Errno::ENFILE) => {
                    // Left in the queue, it would wake the loop again and again.
                    let before = cpu::of_thread();
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

    /// Accepts a connection at its user's expense. Connections that are refused are also charged to the
    /// common pace.
    fn meet(&mut self, socket: OwnedFd) {
        let before = cpu::of_thread();
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

    /// Serves one packet of a connection, at its user's expense.
    fn listen_to(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let (owner, before) = (connection.owner, cpu::of_thread());
        self.hear(number, connection);
        let spent = cpu::of_thread().saturating_sub(before);
        self.budget.charge(owner, spent, Instant::now());
    }

    fn hear(&mut self, number: u64, connection: Connection) {
        let flags = MsgFlags::MSG_DONTWAIT;
        let next = match channel::receive(connection.socket.as_fd(), protocol::REQUEST_MAX, flags) {
            Ok(packet) => match protocol::decode::<Request>(&packet.bytes) {
                Some(request) => self.answer(&connection, request, packet.sender),
                None => {
                    let why = "the request is not understood";
                    self.refuse(&connection.socket, &connection.peer, why);
                    Next::Over
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.connections.insert(number, connection);
                return;
            }
            Err(_) => Next::Over,
        };
        self.go_on(number, connection, next);
    }

    fn go_on(&mut self, number: u64, connection: Connection, next: Next) {
        match next {
            Next::Stay(stage) => {
                let connection = Connection {
                    stage,
                    ..connection
                };
                self.connections.insert(number, connection);
            }
            Next::Over => self.end(connection),
            Next::Run(wish) => self.begin_run(connection, wish),
        }
    }

    fn answer(
        &mut self,
        connection: &Connection,
        request: Request,
        sender: Option<(i32, u32)>,
    ) -> Next {
        match (&connection.stage, request) {
            (Stage::Greeting, Request::Hello { version }) => {
                if version != protocol::VERSION {
                    let ours = protocol::VERSION;
                    let text = format!("the broker speaks version {ours}, not {version}");
                    self.refuse(&connection.socket, &connection.peer, &text);
                    return Next::Over;
                }
                let Ok(nonce) = random::random() else {
                    return Next::Over;
                };
                let version = protocol::VERSION;
                let reply = Reply::Welcome { version, nonce };
                said(reply_to(&connection.socket, &reply), Stage::Asked(nonce))
            }
            (
                Stage::Asked(expected),
                Request::Enable { nonce, .. } | Request::Run { nonce, .. },
            ) if nonce != *expected || !connection.peer.has_sent(sender) => {
                let why = "the process that asks is not the one that connected";
                self.refuse(&connection.socket, &connection.peer, why);
                Next::Over
            }
            (Stage::Asked(_), Request::Run { wish, .. }) => Next::Run(wish),
            (Stage::Asked(_), Request::Enable { wish, .. }) => {
                let next = self.enable(connection, wish);
                self.or_refused(connection, next)
            }
            (Stage::Greeting, Request::Frames { stack }) => {
                let frames = self.frames(stack);
                let _ = reply_to(&connection.socket, &Reply::Frames(frames));
                Next::Over
            }
            _ => {
                let why = "the request is out of order";
                self.refuse(&connection.socket, &connection.peer, why);
                Next::Over
            }
        }
    }

    fn or_refused(&self, connection: &Connection, next: Result<Next>) -> Next {
        next.unwrap_or_else(|error| {
            let why = format!("{error:#}");
            self.refuse(&connection.socket, &connection.peer, &why);
            Next::Over
        })
    }

    fn enable(&mut self, connection: &Connection, wish: Wish) -> Result<Next> {
        let (peer, owner) = (&connection.peer, connection.owner);
        let kind = Kind::of(&wish);
        let now = Instant::now();
        let mut slots = self.quota.take(owner, wish.max_threads, now);
        if slots.is_err() {
            self.take_back(); // what left since the last tick
            slots = self.quota.take(owner, wish.max_threads, now);
        }
        let slots = match slots {
            Ok(slots) => slots,
            Err(refusal) => bail!(refusal),
        };
        let memory = self
            .account
            .take(Some(owner), "its slots", slots_memory(slots));
        let memory = memory.map_err(|refusal| anyhow!(refusal));
        let Some(session) = self.sessions.iter_mut().find(|shared| shared.kind == kind) else {
            self.quota.give_back(owner, slots);
            memory?;
            let is_again = false;
            self.load(kind, owner, is_again)?;
            return Ok(Next::Stay(Stage::Waits(wish)));
        };
        let admitted = memory.and_then(|memory| Ok((session.admit(peer, slots)?, memory)));
        let (admitted, memory) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                self.quota.give_back(owner, slots);
                return Err(error);
            }
        };
        let reply = protocol::encode(&Reply::Enabled { slots });
        let given = objects::map_by_id(admitted.slots_id);
        let given = given.and_then(|slots| Ok((slots, self.presence.for_client()?)));
        let sent = given.and_then(|(slots, page)| {
            let descriptors = [slots.as_raw_fd(), page.as_raw_fd()];
            let flags = MsgFlags::MSG_DONTWAIT;
            channel::send(connection.socket.as_fd(), &reply, &descriptors, flags)
        });
        let stage = Stage::Client {
            kind,
            client: admitted.client,
            map: admitted.slots,
            slots_id: admitted.slots_id,
            slots,
            memory,
        };
        if sent.is_err() {
            self.release(owner, stage);
            return Ok(Next::Over);
        }
        Ok(Next::Stay(stage))
    }

    /// The functions of a stack, without their addresses.
    fn frames(&mut self, stack: u64) -> Vec<FrameText> {
        let mut of_runs = self.runs.iter().filter_map(|run| run.terms.stacks.get());
        let found = self.sessions.iter().find_map(|shared| shared.stack(stack));
        let found = found.or_else(|| of_runs.find_map(|table| find_stack(table, stack)));
        let Some(addresses) = found else {
            if self.forgot_shapes.elapsed() > FORGET {
                self.forgot_shapes = Instant::now();
                self.sessions.iter().for_each(Shared::forget_shapes);
            }
            return Vec::new();
        };
        let text = |address: &u64| FrameText::of(self.symbols.kernel(*address));
        addresses.iter().map(text).collect()
    }

    /// Gives a client a session of its own, with a thread that waits for it, since this thread does not.
    fn begin_run(&mut self, connection: Connection, wish: RunWish) {
        let Connection {
            socket,
            peer,
            owner,
            ..
        } = connection;
        self.end_runs(JoinHandle::is_finished); // what ended since the last tick
        if let Err(refusal) = self.quota.begin_run(owner, Instant::now()) {
            self.refuse(&socket, &peer, refusal);
            return self.quota.disconnect(owner);
        }
        let (account, budget, log) = (&self.account, &self.budget, &self.log);
        let terms = Arc::new(RunLimits::new(owner, account, budget, log));
        let started = socket.try_clone().and_then(|own| {
            let name = "debox-run".to_string();
            let terms = Arc::clone(&terms);
            let serve = move || {
                // The result only matters to the client, which has received it or has gone.
                let _ = run::serve(&own, &peer, wish, &terms);
                let _ = socket::shutdown(own.as_raw_fd(), socket::Shutdown::Both);
            };
            std::thread::Builder::new().name(name).spawn(serve)
        });
        match started {
            Ok(thread) => self.runs.push(Run {
                owner,
                socket,
                terms,
                thread,
            }),
            Err(error) => {
                refuse(&socket, &error.to_string());
                self.quota.end_run(owner);
                self.quota.disconnect(owner);
            }
        }
    }

    /// Joins the threads of the runs that are over, and takes back what they had.
    fn end_runs(&mut self, is_over: impl Fn(&JoinHandle<()>) -> bool) {
        let (over, others) = self.runs.drain(..).partition(|run| is_over(&run.thread));
        self.runs = others;
        let over: Vec<Run> = over;
        for run in over {
            let _ = run.thread.join();
            self.held_of_runs.append(&mut run.terms.given());
            self.quota.end_run(run.owner);
            self.quota.disconnect(run.owner);
        }
    }

    fn end(&mut self, connection: Connection) {
        self.release(connection.owner, connection.stage);
        self.quota.disconnect(connection.owner);
    }

    /// Releases what a client had. Its slots count as its share until no process holds them.
    fn release(&mut self, owner: u32, stage: Stage) {
        if let Stage::Client {
            kind,
            client,
            map,
            slots_id,
            slots,
            memory,
        } = stage
        {
            let session = self.sessions.iter_mut().find(|shared| shared.kind == kind);
            if let Some(session) = session {
                session.leave(client);
            }
            mark_gone(&map, slots);
            self.held.push(Held {
                owner,
                map: slots_id,
                slots,
                _memory: memory,
            });
        }
    }

    fn tick(&mut self) -> Result<()> {
        for session in &mut self.sessions {
            session.tick()?;
        }
        self.unload(UNUSED, USUAL_UNUSED);
        self.take_back();
        self.end_runs(JoinHandle::is_finished);
        let now = Instant::now();
        self.quota.forget_idle(now);
        self.budget.forget_idle(now);
        self.log.settle(now);
        self.owners.refresh();
        let is_late = |connection: &Connection| {
            !matches!(connection.stage, Stage::Client { .. } | Stage::Waits(_))
                && now.saturating_duration_since(connection.since) > PATIENCE
        };
        let late: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_late(connection))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(connection) = self.connections.remove(&number) {
                self.end(connection);
            }
        }
        Ok(())
    }

    /// Makes slots available again that no process holds any more.
    fn take_back(&mut self) {
        let quota = &mut self.quota;
        self.held.retain(|held| {
            let is_held = !objects::map_is_gone(held.map);
            if !is_held {
                quota.give_back(held.owner, held.slots);
            }
            is_held
        });
        self.held_of_runs
            .retain(|given| !objects::map_is_gone(given.map));
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

fn said(sent: io::Result<()>, stage: Stage) -> Next {
    if sent.is_ok() {
        Next::Stay(stage)
    } else {
        Next::Over
    }
}
