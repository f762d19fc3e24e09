//! A client's own session: the broker's side of `debox run` without privilege.
//!
//! Everything in it belongs to one client, so the size and the number of such sessions limit what a client may
//! have. Each has its own thread in the broker, which waits for its client only. The client's processes are not
//! inspected here: what the probes saw of them goes to the client, which looks it up with its own rights.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{self, sockopt, MsgFlags};
use nix::sys::time::TimeVal;

use super::account::{kernel_memory, Share};
use super::channel;
use super::cpu;
use super::peer::Peer;
use super::probe_data::{Shape, ShapeKey, Stack};
use super::protocol::{self, FrameText, Reply, Request, RunWish, BULK};
use super::run_limits::{Given, Meter, RunLimits};
use super::shared::{slots_memory, ClientTable};
use super::wire::{self, Places};
use crate::clock::monotonic_ns;
use crate::collect::Snapshot;
use crate::kernel::objects;
use crate::options::{Options, Role, Tap};
use crate::session::{Enrolment, Session, Table};
use crate::symbols::Symbols;
use crate::tables::{self, types};

/// The most threads of such a session; under the user tap each has a slot of 16 KB.
const THREADS: u32 = 4096;
const SLOTS: u32 = 512;

/// How often events are received: the ring has room for some thousand.
const TICK: Duration = Duration::from_millis(20);
/// A client that waits for events is answered after this time at the latest.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The most requests per tick; further requests wait.
const REQUESTS_PER_TICK: u32 = 200;
/// The shortest time between reports, for each of which all tables are read and encoded.
const BETWEEN_REPORTS: Duration = Duration::from_millis(500);

/// A client that does not read for so many seconds is disconnected.
const PATIENCE: i64 = 5;
/// The same for a whole report, and for a client that has nothing monitored and does not ask for its report.
const LONG: Duration = Duration::from_secs(30);

/// The most events of each kind in one reply.
pub const BATCH: usize = 16;

/// The estimated kernel memory of a session, until one was loaded.
const ESTIMATE: u64 = 160 << 20;
/// A session's other memory: events and stacks that wait to be fetched, and a report of the usual size.
const WAITING: u64 = 32 << 20;
const REPORT: u64 = 8 << 20;
/// How long a larger report waits for memory.
const ROOM: Duration = Duration::from_secs(5);

/// Serves one client, on a thread of its own, until it is done or gone.
pub fn serve(
    connection: &OwnedFd,
    peer: &Peer,
    wish: RunWish,
    limits: &Arc<RunLimits>,
) -> Result<()> {
    cpu::follow(peer.pid);
    let mut meter = Meter::of(limits);
    let served = serve_run(connection, peer, wish, limits, &mut meter);
    if let Err(error) = &served {
        limits
            .log
            .refused(peer.uid, peer.pid, &format!("its run: {error:#}"));
    }
    served
}

fn serve_run(
    connection: &OwnedFd,
    peer: &Peer,
    wish: RunWish,
    limits: &Arc<RunLimits>,
    meter: &mut Meter,
) -> Result<()> {
    let limit = TimeVal::new(PATIENCE, 0);
    socket::setsockopt(connection, sockopt::SendTimeout, &limit)?;
    let flags = nix::fcntl::OFlag::empty();
    nix::fcntl::fcntl(connection, nix::fcntl::FcntlArg::F_SETFL(flags))?;
    let opened = limits
        .wait_for_cpu(peer)
        .and_then(|()| Run::open(peer, wish, limits));
    meter.charge();
    let mut run = match opened {
        Ok(run) => run,
        Err(error) => return refuse(connection, error),
    };
    let table = run.session.kernel_stacks()?;
    let _ = limits.stacks.set(table);
    run.welcome(connection)?;
    let (mut next_tick, mut requests) = (Instant::now() + TICK, 0);
    loop {
        let now = Instant::now();
        if now >= next_tick {
            run.tick(now)?;
            meter.charge();
            let has_spent_all = limits.has_spent_all(now);
            (next_tick, requests) = (now + TICK, 0);
            if has_spent_all {
                ensure!(peer.is_alive(), "the process has ended");
                requests = REQUESTS_PER_TICK;
            }
        }
        let wait = next_tick.saturating_duration_since(now);
        if requests >= REQUESTS_PER_TICK {
            std::thread::sleep(wait);
            continue;
        }
        let wait = if run.owes_news() {
            Duration::ZERO
        } else {
            wait
        };
        let is_asked = run.wait(connection, wait)?;
        if run.owes_news() {
            run.has_asked_until = None;
            let reply = run.news();
            say(connection, &reply, None)?;
        }
        if !is_asked {
            continue;
        }
        let flags = MsgFlags::MSG_DONTWAIT;
        let Ok(packet) = channel::receive(connection.as_fd(), protocol::REQUEST_MAX, flags) else {
            return Ok(()); // it has gone, or sent an invalid packet
        };
        requests += 1;
        let Some(request) = protocol::decode::<Request>(&packet.bytes) else {
            return refuse(connection, anyhow!("the request is not understood"));
        };
        match run.answer(connection, peer, request, packet.descriptor) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return refuse(connection, error),
        }
    }
}

/// Sends the client the reason for the end, and returns it.
fn refuse(connection: &OwnedFd, error: anyhow::Error) -> Result<()> {
    say(connection, &Reply::Refused(format!("{error:#}")), None)?;
    Err(error)
}

fn say(connection: &OwnedFd, reply: &Reply, descriptor: Option<i32>) -> Result<()> {
    let packet = protocol::encode(reply);
    channel::send(
        connection.as_fd(),
        &packet,
        descriptor.as_slice(),
        MsgFlags::empty(),
    )
    .context("the client does not read")
}

struct Run {
    session: Session,
    limits: Arc<RunLimits>,
    _memory: Share,
    /// How large the last report was.
    last_report: u64,
    // The client's entry for the probes; mapped as long as they are loaded.
    _clients: ClientTable,
    places: Places,
    /// When something was last monitored, and when that was last checked.
    used: Instant,
    looked: Instant,
    reported: Option<Instant>,
    /// Threads that were released; at the next check no probe can be using their entries any more.
    cooling: Vec<u32>,
    /// The client waits for events until this time.
    has_asked_until: Option<Instant>,
    is_stack_next: bool,
}

impl Run {
    fn open(peer: &Peer, wish: RunWish, limits: &Arc<RunLimits>) -> Result<Run> {
        let tap = wish.asked.tap();
        let max_threads = wish.asked.max_threads.clamp(1, THREADS);
        let (max_threads, max_records) = match tap {
            Tap::Kernel => (max_threads, 0),
            Tap::User => (max_threads.min(SLOTS), max_threads.min(SLOTS)),
        };
        let options = Options {
            tap,
            detail: wish.detail(),
            slow_ns: wish.slow_ns,
            max_threads,
            max_records,
            adopts_sleeps: wish.attaches,
            one_process: wish.one_process,
            ..Options::default()
        };
        let (what, account) = (format!("{wish:?}"), &limits.account);
        let estimate = account.estimate(&what, ESTIMATE) + WAITING;
        let memory = account.take_large(Some(limits.owner), "a run", estimate);
        let mut memory = memory.map_err(|refusal| anyhow!(refusal))?;
        let session = Session::load(options, Role::Run)?;
        let bytes = kernel_memory(session.object());
        account.learn(&what, bytes);
        memory.set(bytes + WAITING);
        if tap == Tap::User {
            // Each map counts until no process holds it, even after the run.
            for (table, size) in [
                (Table::Slots, slots_memory(max_records)),
                (Table::SlotThreads, u64::from(max_records) * 8),
            ] {
                let id = objects::map_id(session.table(table))?;
                let given = Given::new(id, memory.split(size));
                limits.given().push(given);
            }
        }
        let clients = ClientTable::map(session.table(Table::Clients), 1)?;
        clients.begin(0, peer.uid, max_records)?;
        let now = Instant::now();
        let mut run = Run {
            session,
            limits: Arc::clone(limits),
            _memory: memory,
            last_report: 0,
            _clients: clients,
            places: Places::new(),
            used: now,
            looked: now,
            reported: None,
            cooling: Vec::new(),
            has_asked_until: None,
            is_stack_next: false,
        };
        if wish.attaches {
            // Its processes may be in a container, where their ids differ from those that the client sees.
            run.learn_namespace(peer)?;
        }
        Ok(run)
    }

    /// Waits for the client or the probes; returns whether the client has sent something.
    fn wait(&mut self, connection: &OwnedFd, limit: Duration) -> Result<bool> {
        // SAFETY: the ring's descriptor stays open as long as the session.
        let ring = unsafe { BorrowedFd::borrow_raw(self.session.events_fd()) };
        let interest = PollFlags::POLLIN;
        let mut polled = [
            PollFd::new(connection.as_fd(), interest),
            PollFd::new(ring, interest),
        ];
        let rounded = u8::from(!limit.is_zero());
        let limit = PollTimeout::from(limit.as_millis() as u8 + rounded);
        let _ = poll(&mut polled, limit);
        let is_ready = |polled: &PollFd| polled.any() == Some(true);
        let (is_asked, has_seen) = (is_ready(&polled[0]), is_ready(&polled[1]));
        if has_seen {
            self.session.take_in()?;
        }
        Ok(is_asked)
    }

    /// Whether there is something that has to be looked up while it still exists.
    fn has_news(&self) -> bool {
        let events = self.session.events();
        let held = events.forwarded.as_ref();
        !events.call_sites.is_empty()
            || held.is_some_and(|held| !(held.resources.is_empty() && held.stacks.is_empty()))
    }

    /// Whether the client waits for events and is due an answer.
    fn owes_news(&self) -> bool {
        let until = self.has_asked_until;
        until.is_some_and(|until| self.has_news() || Instant::now() >= until)
    }

    /// Under the user tap the client's processes write their records themselves.
    fn welcome(&self, connection: &OwnedFd) -> Result<()> {
        let slots = self.session.options().max_records;
        let is_tapped = slots > 0;
        if !is_tapped {
            return say(connection, &Reply::Running { slots }, None);
        }
        for table in [Table::Slots, Table::SlotThreads] {
            let id = objects::map_id(self.session.table(table))?;
            let given = objects::map_by_id(id).context("cannot share a map")?;
            let reply = Reply::Running { slots };
            say(connection, &reply, Some(given.as_raw_fd()))?;
        }
        Ok(())
    }

    /// Answers a request; returns whether the session continues.
    fn answer(
        &mut self,
        connection: &OwnedFd,
        peer: &Peer,
        request: Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<bool> {
        match request {
            Request::Enrol { is_running } => {
                let process = descriptor.context("no process came along to be enrolled")?;
                let reply = match self.may_enrol(peer, &process) {
                    Ok(()) => Reply::Enrolled {
                        threads: self.enrol(peer, &process, is_running)?,
                    },
                    Err(why) => Reply::NotEnrolled(format!("{why:#}")),
                };
                say(connection, &reply, None)?;
            }
            Request::Events { wait_ms } => {
                let wait = Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
                self.has_asked_until = Some(Instant::now() + wait);
            }
            Request::Wrapper {
                tgid,
                ip,
                offset,
                rule,
            } => self.learn(tgid, ip, offset, rule),
            Request::Shape { key, shape } => self.learn_stack(&key, &shape)?,
            Request::Alive { tgid } => {
                let count = match tgid {
                    0 => u32::from(self.session.has_threads()?),
                    _ => self.session.threads_alive(tgid)? as u32,
                };
                say(connection, &Reply::Alive { count }, None)?;
            }
            Request::Report { is_last } => {
                self.report(connection, is_last)?;
                return Ok(!is_last);
            }
            _ => bail!("the request is out of order"),
        }
        Ok(true)
    }

    fn learn_namespace(&mut self, peer: &Peer) -> Result<()> {
        let enrolment = Enrolment {
            tgid: peer.pid,
            tid: peer.pid,
            learns: true,
            ..Enrolment::default()
        };
        self.session.enrol_by(&enrolment, Some(peer.descriptor()))
    }

    /// Fails if the client may not inspect a process that it attaches to. For a descendant, the probe checks
    /// it.
    fn may_enrol(&self, peer: &Peer, process: &OwnedFd) -> Result<()> {
        match self.session.options().adopts_sleeps {
            true => peer.require_access(pid_of(process)?),
            false => Ok(()),
        }
    }

    /// Enrols a descendant of the client, or a process that it may attach to. The process is identified by the
    /// descriptor, not by its id. Returns how many of its threads are new.
    fn enrol(&mut self, peer: &Peer, process: &OwnedFd, is_running: bool) -> Result<u32> {
        if !self.session.is_attached() {
            self.session.attach()?;
        }
        let pid = pid_of(process)?;
        let attaches = self.session.options().adopts_sleeps;
        let before = self.session.threads_enrolled();
        let enrolment = Enrolment {
            tgid: pid,
            ancestor: if attaches { 0 } else { peer.pid },
            is_armed: !is_running,
            ..Enrolment::default()
        };
        let walked = self.session.enrol_by(&enrolment, Some(process.as_fd()));
        ensure!(peer.is_alive(), "the process has ended");
        // A running process may have ended by now, or be monitored since it was forked.
        if !is_running {
            walked?;
            ensure!(
                self.session.threads_enrolled() > before,
                "the process is not below the one that asks, or has other rights than it"
            );
        }
        self.used = Instant::now();
        Ok(self.session.threads_enrolled() - before)
    }

    /// Receives events; from time to time checks whether the probes are still needed.
    fn tick(&mut self, now: Instant) -> Result<()> {
        self.session.take_in()?;
        if now.saturating_duration_since(self.looked) < Duration::from_secs(1) {
            return Ok(());
        }
        self.looked = now;
        for index in self.cooling.drain(..) {
            self.session.free_thread(index)?;
        }
        self.cooling.extend(self.session.take_retired_threads());
        if self.session.has_threads()? {
            self.used = now;
        }
        let is_idle = now.saturating_duration_since(self.used) > LONG;
        ensure!(!is_idle, "nothing has been monitored for a long time");
        Ok(())
    }

    /// Alternates between a user stack, which is too large to share a reply, and other events.
    fn news(&mut self) -> Reply {
        self.is_stack_next = !self.is_stack_next;
        let ask = self.is_stack_next.then(|| {
            let mut events = self.session.events_mut();
            Stack::of(&events.forwarded.as_mut()?.stacks.pop_front()?)
        });
        match ask.flatten() {
            Some(stack) => Reply::Stack(Box::new(stack)),
            None => self.events(),
        }
    }

    fn events(&mut self) -> Reply {
        fn batch<'a, T, Shown: From<&'a T>>(from: &'a [T]) -> Vec<Shown> {
            from.iter().take(BATCH).map(Shown::from).collect()
        }
        fn drop_batch<T>(from: &mut Vec<T>) {
            from.drain(..from.len().min(BATCH));
        }
        let mut events = self.session.events_mut();
        let events = &mut *events;
        let ended = batch(&events.ended);
        drop_batch(&mut events.ended);
        let call_sites = batch(&events.call_sites);
        drop_batch(&mut events.call_sites);
        let mut is_more = !(events.ended.is_empty() && events.call_sites.is_empty());
        let (mut resources, mut titles) = (Vec::new(), Vec::new());
        if let Some(held) = &mut events.forwarded {
            resources = batch(&held.resources);
            drop_batch(&mut held.resources);
            titles = batch(&held.titles);
            drop_batch(&mut held.titles);
            is_more |= !(held.resources.is_empty() && held.stacks.is_empty());
            is_more |= !held.titles.is_empty();
        }
        Reply::Events {
            ended,
            call_sites,
            resources,
            titles,
            is_more,
        }
    }

    /// Stores where the client's program keeps a return address. It affects no other client.
    fn learn(&self, tgid: u32, ip: u64, offset: i32, rule: u32) {
        // Best effort, as in a session of one's own.
        let value = types::wrapper { offset, rule };
        self.session.learn_wrapper(tgid, ip, value);
    }

    /// Stores how the client's own stacks are recognised. Errors in it misname only these.
    fn learn_stack(&self, key: &ShapeKey, shape: &Shape) -> Result<()> {
        let key = types::user_shape_key::from(key);
        let shape = shape
            .for_probes()
            .context("the shape of a user stack is not understood")?;
        self.session.learn_shape(&key, &shape);
        Ok(())
    }

    fn report(&mut self, connection: &OwnedFd, is_last: bool) -> Result<()> {
        let now = Instant::now();
        let is_too_early = |last: Instant| now.saturating_duration_since(last) < BETWEEN_REPORTS;
        ensure!(
            is_last || !self.reported.is_some_and(is_too_early),
            "reports are asked for too often"
        );
        let mut room = self.room_for_report()?;
        let stacks = self.session.stacks_in_flight()?;
        let stopped_ns = if is_last {
            self.session.stop()?
        } else {
            monotonic_ns()
        };
        let (snapshot, ended) = self.take_out(stopped_ns, &stacks)?;
        self.look_up(&snapshot);
        let bytes = wire::encode(&snapshot, ended, &self.places);
        drop(snapshot);
        let size = bytes.len() as u64;
        self.last_report = size;
        room.set(size.saturating_sub(REPORT));
        say(connection, &Reply::Report { size }, None)?;
        for chunk in bytes.chunks(BULK) {
            ensure!(now.elapsed() < LONG, "the client does not read");
            channel::send(connection.as_fd(), chunk, &[], MsgFlags::empty())
                .context("the client does not read")?;
        }
        self.reported = Some(Instant::now());
        Ok(())
    }

    /// Memory for the part of a report beyond the usual size. The report is assumed to be as large as the last
    /// one, and takes three times its size while it is read and encoded.
    fn room_for_report(&self) -> Result<Share> {
        let bytes = (3 * self.last_report).saturating_sub(REPORT);
        let (limits, start) = (&self.limits, Instant::now());
        loop {
            let taken = limits.account.take(Some(limits.owner), "a report", bytes);
            match taken {
                Ok(room) => return Ok(room),
                Err(refusal) if start.elapsed() > ROOM => bail!(refusal),
                Err(_) => std::thread::sleep(TICK),
            }
        }
    }

    /// Reads the tables. Returns the threads that have ended only once.
    fn take_out(
        &mut self,
        stopped_ns: u64,
        stacks: &HashMap<u32, Vec<u64>>,
    ) -> Result<(Snapshot, usize)> {
        let before = self.session.events().ended.len();
        let mut snapshot = self.session.snapshot(stopped_ns, stacks)?;
        let mut events = self.session.events_mut();
        debug_assert_eq!(before, events.ended.len()); // no events were received meanwhile
        events.ended.clear();
        events.ended_unlisted.clear();
        if let Some(held) = &events.forwarded {
            tables::add(&mut snapshot.lost.stacks, held.dropped);
        }
        Ok((snapshot, before))
    }

    fn look_up(&mut self, snapshot: &Snapshot) {
        let places = &mut self.places;
        let mut symbols = None; // kept no longer than needed: the kernel's symbols take memory
        for address in wire::addresses(snapshot) {
            places.entry(address).or_insert_with(|| {
                let symbols = symbols.get_or_insert_with(Symbols::default);
                FrameText::of(symbols.kernel(address))
            });
        }
    }
}

/// The id, in this namespace, of the process that a descriptor stands for.
fn pid_of(process: &OwnedFd) -> Result<u32> {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let text = fs::read_to_string(path).context("cannot ask for the process")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match line.and_then(|pid| pid.trim().parse::<u32>().ok()) {
        Some(pid) if pid > 0 => Ok(pid),
        _ => bail!("the descriptor is not that of a living process"),
    }
}
