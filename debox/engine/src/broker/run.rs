//! A client's own session: the broker's side of `debox run` without privilege.
//!
//! Everything in it belongs to one client, so the size and the number of such sessions limit what a client may
//! have. Each has its own thread in the broker, which waits for its client only. The client's processes are not
//! inspected here: what the probes saw of them goes to the client, which looks it up with its own rights.

mod answers;
mod enrol;
mod events;
mod looks;
mod records;
mod report;

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
use super::protocol::{self, Reply, Request, RunWish};
use super::run_limits::{Given, Meter, RunLimits};
use super::shared::{slots_memory, ClientTable};
use super::wire::Places;
use crate::kernel::objects;
use crate::options::{Options, Role, Tap};
use crate::session::{Session, Table};
use crate::symbols::Symbols;
use crate::trigger::Trigger;
use looks::Looks;
use records::{Records, Stopped};

/// The most threads of such a session; under the user tap each has a slot of 16 KB.
pub const THREADS: u32 = 4096;
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

/// The estimated kernel memory of a session, until one was loaded.
const ESTIMATE: u64 = 160 << 20;
/// A session's other memory: events and stacks that wait to be fetched, and a report of the usual size.
const WAITING: u64 = 32 << 20;
const REPORT: u64 = 8 << 20;
/// The kernel's symbols, which a session keeps that names places before its report.
const SYMBOLS: u64 = 24 << 20;
/// The tables of a look, while they are read and encoded.
const LOOK: u64 = 24 << 20;
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
        limits.log.refused(peer.uid, peer.pid, &why_for_log(error));
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
    // Declared, and so dropped, before the session, whose maps it reads.
    records: Option<Records>,
    session: Session,
    limits: Arc<RunLimits>,
    _memory: Share,
    /// How large the last report was.
    last_report: u64,
    // The client's entry for the probes; mapped as long as they are loaded.
    _clients: ClientTable,
    places: Places,
    /// Kept only in a session in which places are asked for one by one.
    symbols: Option<Symbols>,
    /// After the end of the monitoring.
    stopped: Option<Stopped>,
    looks: Looks,
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
            history_bytes: records::granted(wish.history_bytes),
            triggers: triggers_of(&wish)?,
            live: wish.live,
            ..Options::default()
        };
        let own = WAITING + own_memory(&options);
        // Triggers hardly change how much memory a session takes.
        let plain = RunWish {
            triggers: Vec::new(),
            ..wish
        };
        let (what, account) = (format!("{plain:?}"), &limits.account);
        let estimate = account.estimate(&what, ESTIMATE) + own;
        let memory = account.take_large(Some(limits.owner), "a run", estimate);
        let mut memory = memory.map_err(|refusal| anyhow!(refusal))?;
        let session = Session::load(options, Role::Run)?;
        let bytes = kernel_memory(session.object());
        account.learn(&what, bytes);
        memory.set(bytes + own);
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
            records: Records::of(&session)?,
            session,
            limits: Arc::clone(limits),
            _memory: memory,
            last_report: 0,
            _clients: clients,
            places: Places::new(),
            symbols: None,
            stopped: None,
            looks: Looks::default(),
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
            self.take_in()?;
        }
        Ok(is_asked)
    }

    /// Receives events, and answers the probes' questions about places of sleep.
    fn take_in(&mut self) -> Result<()> {
        self.session.take_in()?;
        self.session.serve_triggers();
        Ok(())
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
            Request::Enrol { .. } | Request::Report { is_last: false }
                if self.stopped.is_some() =>
            {
                bail!("the request is out of order")
            }
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
            Request::Records => {
                let reply = self.records()?;
                say(connection, &reply, None)?;
            }
            Request::Place { stack } => {
                let reply = self.place(stack)?;
                say(connection, &reply, None)?;
            }
            Request::Named { key } => say(connection, &self.named(&key), None)?,
            Request::Stop => {
                let reply = self.stop()?;
                say(connection, &reply, None)?;
            }
            Request::Look => self.look(connection)?,
            Request::Asleep { from_ns } => self.asleep(connection, from_ns)?,
            Request::Report { is_last } => {
                self.report(connection, is_last)?;
                return Ok(!is_last);
            }
            _ => bail!("the request is out of order"),
        }
        Ok(true)
    }

    /// Receives events; from time to time checks whether the probes are still needed.
    fn tick(&mut self, now: Instant) -> Result<()> {
        self.take_in()?;
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
}

/// The triggers that a client asks for.
fn triggers_of(wish: &RunWish) -> Result<Vec<Trigger>> {
    let triggers = wish.triggers.iter().map(|text| {
        let trigger: Result<Trigger> = text.parse();
        trigger.map_err(|error| Unparsable(format!("trigger `{text}`: {error:#}")).into())
    });
    triggers.collect()
}

fn why_for_log(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Unparsable>() {
        Some(_) => "its run: a trigger that cannot be parsed".to_string(),
        None => format!("its run: {error:#}"),
    }
}

/// What is wrong with a trigger, in the client's own words, which are not for the log.
#[derive(Debug)]
struct Unparsable(String);

impl std::fmt::Display for Unparsable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unparsable {}

/// How much memory the broker itself takes for places that are named before the report: for the client, and to decide
/// whether triggers fire.
fn own_memory(options: &Options) -> u64 {
    let of_records = u64::from(options.history_bytes > 0);
    let of_triggers = u64::from(!options.triggers.is_empty());
    let of_looks = u64::from(options.live);
    (of_records + of_triggers + of_looks) * SYMBOLS + of_looks * LOOK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_not_logged() {
        let wish = RunWish {
            triggers: vec!["x: Accepted publickey for root".to_string()],
            ..RunWish::new(&Options::default())
        };
        let error = triggers_of(&wish).expect_err("no trigger");
        assert!(format!("{error:#}").contains("publickey"), "{error:#}");
        assert!(!why_for_log(&error).contains("publickey"));
        let other = anyhow!("there is no room");
        assert_eq!(why_for_log(&other), "its run: there is no room");
    }
}
