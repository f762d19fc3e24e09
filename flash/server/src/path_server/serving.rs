// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of the path server. Like flash's own loops it waits for events only: what is in memory it opens itself, and
//! helpers bring the rest.

use std::collections::HashMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use rustix::net::{
    accept_with, recv, send, sendmsg, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags,
};
use slab::Slab;

use super::bring::{How, Opened};
use super::figures::Figures;
use super::peers::Rights;
use super::protocol::{Answer, Place, Question, MAX_QUESTION};
use crate::files::Root;
use crate::helpers::{Caller, Inbox, Job, Pool, Result as Done, Ticket, Want, Work};
use crate::kept::Kept;

/// Connections open at once. Each has at most one question that waits.
pub const CLIENTS: usize = 1024;
/// A connection without a question is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Names are kept open for one to two of these.
const GENERATION: Duration = Duration::from_secs(30);
/// How often the loop looks at times.
const TICK: Duration = Duration::from_secs(1);
const EVENTS: usize = 256;
/// What is copied to see whether the first bytes of a file are in memory.
const SCRATCH: usize = 64 << 10;
/// Of a request for the counters.
const MAX_REQUEST: usize = 4096;

const INBOX: u64 = u64::MAX;
const PATHS: u64 = u64::MAX - 1;
const COUNTERS: u64 = u64::MAX - 2;

/// A name below one of the roots.
type Name = (usize, Vec<u8>);

/// A root, as clients name it.
pub struct Served {
    pub path: Vec<u8>,
    pub root: Arc<Root>,
    pub place: Place,
    pub pool: Arc<Pool>,
}

impl Served {
    /// What a path is called below this root.
    fn name<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let root = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        let rest = path.strip_prefix(root)?;
        if !rest.is_empty() && rest[0] != b'/' {
            return None;
        }
        let begin = rest.iter().position(|byte| *byte != b'/');
        Some(&rest[begin.unwrap_or(rest.len())..])
    }
}

/// What the main thread wants of the loop; the inbox wakes it.
#[derive(Default)]
pub struct Wishes {
    pub ends: AtomicBool,
    pub forgets: AtomicBool,
}

pub struct Parts {
    pub listener: OwnedFd,
    pub counters: Option<OwnedFd>,
    pub inbox: Arc<Inbox>,
    pub wishes: Arc<Wishes>,
    /// The longest path first.
    pub roots: Vec<Served>,
    /// By the name of their device.
    pub pools: Vec<(String, Arc<Pool>)>,
    pub rights: Rights,
    pub keep: usize,
}

struct Client {
    socket: OwnedFd,
    generation: u32,
    since: Instant,
    is_waiting: bool,
    /// It speaks HTTP, and has sent this.
    request: Option<Vec<u8>>,
}

/// Who waits for a name.
struct Waiter {
    client: usize,
    generation: u32,
    id: u32,
    how: How,
}

/// What a helper is bringing, as the first waiter wants it.
struct Lookup {
    number: u64,
    name: Name,
    waiters: Vec<Waiter>,
    _want: Want,
}

pub struct Serving {
    parts: Parts,
    epoll: OwnedFd,
    is_paused: bool,
    clients: Slab<Client>,
    lookups: Slab<Lookup>,
    by_name: HashMap<Name, usize>,
    next: u64,
    kept: Kept<Name, OwnedFd>,
    turned: Instant,
    figures: Figures,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Serving {
    /// # Errors
    ///
    /// The kernel has no descriptor left.
    pub fn new(parts: Parts) -> Result<Serving> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("no epoll descriptor")?;
        let wait = |fd: &OwnedFd, name| {
            let name = epoll::EventData::new_u64(name);
            epoll::add(&epoll, fd, name, epoll::EventFlags::IN)
        };
        wait(&parts.inbox.wakes, INBOX)?;
        wait(&parts.listener, PATHS)?;
        if let Some(socket) = &parts.counters {
            wait(socket, COUNTERS)?;
        }
        Ok(Serving {
            kept: Kept::new(parts.keep),
            parts,
            epoll,
            is_paused: false,
            clients: Slab::new(),
            lookups: Slab::new(),
            by_name: HashMap::new(),
            next: 0,
            turned: Instant::now(),
            figures: Figures::default(),
            // One byte more, so that a longer question is not taken for one of the greatest length.
            buffer: vec![0; MAX_QUESTION + 1],
            scratch: vec![0; SCRATCH],
        })
    }

    /// # Errors
    ///
    /// It cannot wait for events.
    pub fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let tick = Timespec {
            tv_sec: TICK.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut looked = Instant::now();
        while !self.parts.wishes.ends.load(Ordering::Relaxed) {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for events"),
            }
            let turn = Instant::now();
            for event in events.drain(..) {
                self.take(event.data.u64());
            }
            if self.parts.wishes.forgets.swap(false, Ordering::Relaxed) {
                self.kept.clear();
            }
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                self.look_at_times();
            }
            let ns = u64::try_from(turn.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.figures.longest_turn_ns = self.figures.longest_turn_ns.max(ns);
        }
        Ok(())
    }

    fn take(&mut self, name: u64) {
        match name {
            INBOX => {
                let mut done = Vec::new();
                self.parts
                    .inbox
                    .take(|ticket, result| done.push((ticket, result)));
                for (ticket, result) in done {
                    self.brought(ticket, result);
                }
            }
            PATHS => self.accept(false),
            COUNTERS => self.accept(true),
            name => {
                let (key, generation) =
                    ((name & u64::from(u32::MAX)) as usize, (name >> 32) as u32);
                if self.client(key, generation).is_some() {
                    self.receive(key);
                }
            }
        }
    }

    fn client(&mut self, key: usize, generation: u32) -> Option<&mut Client> {
        let client = self.clients.get_mut(key);
        client.filter(|client| client.generation == generation)
    }

    fn accept(&mut self, asks_for_counters: bool) {
        let listener = match asks_for_counters {
            false => Some(&self.parts.listener),
            true => self.parts.counters.as_ref(),
        };
        let Some(listener) = listener else { return };
        let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => return self.pause(),
            Err(_) => return,
        };
        if self.clients.len() >= CLIENTS {
            // Its own call is better than a wait.
            self.figures.refused_clients += 1;
            return;
        }
        if !asks_for_counters && !self.parts.rights.admit(&socket) {
            self.figures.refused_peers += 1;
            return;
        }
        self.next += 1;
        let generation = self.next as u32 & (u32::MAX >> 1);
        let key = self.clients.insert(Client {
            socket,
            generation,
            since: Instant::now(),
            is_waiting: false,
            request: asks_for_counters.then(Vec::new),
        });
        let name = epoll::EventData::new_u64(u64::from(generation) << 32 | key as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if epoll::add(&self.epoll, &self.clients[key].socket, name, flags).is_err() {
            return self.close(key);
        }
        // Clients send at once.
        self.receive(key);
    }

    /// There is no descriptor for a client: what is kept open goes first.
    fn pause(&mut self) {
        self.kept.clear();
        for listener in [Some(&self.parts.listener), self.parts.counters.as_ref()] {
            let _ = listener.map(|listener| epoll::delete(&self.epoll, listener));
        }
        self.is_paused = true;
    }

    fn look_at_times(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            for (listener, name) in [
                (Some(&self.parts.listener), PATHS),
                (self.parts.counters.as_ref(), COUNTERS),
            ] {
                let name = epoll::EventData::new_u64(name);
                let wait = |socket| epoll::add(&self.epoll, socket, name, epoll::EventFlags::IN);
                let _ = listener.map(wait);
            }
        }
        if self.turned.elapsed() >= GENERATION {
            self.turned = Instant::now();
            self.kept.turn();
        }
        let is_idle = |client: &Client| !client.is_waiting && client.since.elapsed() >= IDLE;
        self.clients.retain(|_, client| !is_idle(client));
    }

    fn close(&mut self, key: usize) {
        self.clients.try_remove(key);
    }

    fn receive(&mut self, key: usize) {
        let client = &mut self.clients[key];
        if client.is_waiting {
            // There is one question at a time, so it has gone, or does not keep to the protocol.
            return self.close(key);
        }
        match recv(&client.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.close(key),
            Ok((length, _)) if client.request.is_some() => self.requested(key, length),
            Ok((length, _)) => self.asked(key, length),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(key),
        }
    }

    fn asked(&mut self, key: usize, length: usize) {
        let Ok(question) = Question::read(&self.buffer[..length]) else {
            self.figures.malformed += 1;
            return self.close(key);
        };
        self.figures.questions += 1;
        let client = &mut self.clients[key];
        (client.is_waiting, client.since) = (true, Instant::now());
        let (kind, flags) = (question.kind, question.flags);
        let waiter = Waiter {
            client: key,
            generation: client.generation,
            id: question.id,
            how: How { kind, flags },
        };
        let found = self.parts.roots.iter().enumerate().find_map(|(at, root)| {
            let name = root.name(question.path)?;
            Some((at, name.to_vec()))
        });
        let Some(name) = found else {
            return self.answer(&waiter, 0, Err(Errno::XDEV));
        };
        let root = Arc::clone(&self.parts.roots[name.0].root);
        match waiter.how.open_cached(&root, &name.1, &mut self.scratch) {
            Some(opened) => {
                self.figures.cached += 1;
                self.answer(&waiter, name.0, opened);
            }
            None => self.bring(name, vec![waiter]),
        }
    }

    /// Leaves a name to a helper, unless one is bringing it already.
    fn bring(&mut self, name: Name, waiters: Vec<Waiter>) {
        if let Some(at) = self.by_name.get(&name) {
            self.figures.joined += waiters.len() as u64;
            return self.lookups[*at].waiters.extend(waiters);
        }
        let Some(how) = waiters.first().map(|waiter| waiter.how) else {
            return;
        };
        let served = &self.parts.roots[name.0];
        let entry = self.lookups.vacant_entry();
        self.next += 1;
        let ticket = Ticket {
            connection: entry.key(),
            number: self.next,
        };
        let want = Want::default();
        let job = Job {
            caller: Caller::new(ticket, Arc::clone(&self.parts.inbox), &want, Duration::MAX),
            work: Work::Bring {
                root: Arc::clone(&served.root),
                name: name.1.clone(),
                how,
            },
        };
        if !served.pool.submit(job) {
            self.figures.refused += waiters.len() as u64;
            for waiter in waiters {
                self.answer(&waiter, name.0, Err(Errno::BUSY));
            }
            return;
        }
        self.figures.brought += 1;
        self.by_name.insert(name.clone(), entry.key());
        entry.insert(Lookup {
            number: self.next,
            name,
            waiters,
            _want: want,
        });
    }

    fn brought(&mut self, ticket: Ticket, result: Done) {
        let at = ticket.connection;
        let is_current = self
            .lookups
            .get(at)
            .is_some_and(|it| it.number == ticket.number);
        let (true, Done::Brought(brought)) = (is_current, result) else {
            return;
        };
        let Lookup { name, waiters, .. } = self.lookups.remove(at);
        self.by_name.remove(&name);
        let mut waiters = waiters.into_iter();
        if let Some(first) = waiters.next() {
            self.answer(&first, name.0, brought.opened);
        }
        // Each needs an offset of its own, so a copy of the descriptor would not do.
        let root = Arc::clone(&self.parts.roots[name.0].root);
        let mut again = Vec::new();
        for waiter in waiters {
            match waiter.how.open_cached(&root, &name.1, &mut self.scratch) {
                Some(opened) => self.answer(&waiter, name.0, opened),
                None => again.push(waiter),
            }
        }
        if let Some(pin) = brought.pin {
            self.kept.keep(name.clone(), pin);
        }
        self.bring(name, again);
    }

    fn answer(&mut self, waiter: &Waiter, root: usize, opened: Result<Opened, Errno>) {
        let (place, length) = match self.parts.roots.get(root) {
            Some(served) => (served.place, served.path.len()),
            None => return,
        };
        let Some(client) = self.client(waiter.client, waiter.generation) else {
            self.figures.gone += 1;
            return;
        };
        (client.is_waiting, client.since) = (false, Instant::now());
        let message = match &opened {
            Ok(opened) => Answer::of(waiter.id, &opened.status, place, length),
            Err(error) => Answer::refusal(waiter.id, error.raw_os_error()),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        let descriptor = opened.as_ref().map(|opened| [opened.fd.as_fd()]);
        if let Ok(descriptor) = &descriptor {
            passed.push(SendAncillaryMessage::ScmRights(descriptor));
        }
        let parts = [IoSlice::new(message.bytes())];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&client.socket, &parts, &mut passed, flags);
        self.figures.failed += u64::from(descriptor.is_err());
        if sent.is_err() {
            // It has gone, or does not read its answers.
            self.close(waiter.client);
        }
    }

    /// A part of a request for the counters has come.
    fn requested(&mut self, key: usize, length: usize) {
        let Some(request) = &mut self.clients[key].request else {
            return;
        };
        request.extend_from_slice(&self.buffer[..length]);
        let is_whole = memchr::memmem::find(request, b"\r\n\r\n").is_some();
        if !is_whole && request.len() < MAX_REQUEST {
            return;
        }
        let is_known = is_whole && request.starts_with(b"GET /metrics ");
        self.figures.clients = self.clients.len() as u64;
        self.figures.waiting = self.lookups.len() as u64;
        self.figures.kept = self.kept.len() as u64;
        let (status, body) = match is_known {
            true => ("200 OK", self.figures.page(&self.parts.pools)),
            false => ("404 Not Found", "GET /metrics\n".to_string()),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        // It is shorter than what a new socket takes at once.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(&self.clients[key].socket, answer.as_bytes(), flags);
        self.close(key);
    }
}
