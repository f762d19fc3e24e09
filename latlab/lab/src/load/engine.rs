//! The event loop: starts due requests, waits, and processes what came.

mod ends;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::arrivals::{Arrivals, Rates};
use super::connection::{failure, Connection, Job, Phase, Progress};
use super::in_flight::Counter;
use super::live::Watch;
use super::transport::{Security, Transport};
use super::{Config, Delays, Mode, Outcome, SoFar};
use crate::rows::{Row, Spool};
use crate::signals;
use crate::sys::{self, Epoll, Event};
use crate::workload::Workload;

/// Interval between the starts of a closed loop's clients, because the listen queue is limited.
const STAGGER_NS: i64 = 50_000;
/// Delay before a client of a closed loop tries to connect again.
const RETRY_NS: i64 = 10_000_000;
/// The longest time between two checks for signals and the end of the run.
const LONGEST_WAIT_NS: i64 = 100_000_000;
const PROGRESS_NS: i64 = 500_000_000;
const BUFFER: usize = 64 << 10;

/// Set by a signal handler.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Lets the terminating signals end the run with the results so far.
fn stop_on_signals() {
    let handler: extern "C" fn(libc::c_int) = stop;
    for signal in signals::ENDING {
        // SAFETY: the handler only sets a flag.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Makes the load. `progress` is called regularly.
pub fn run(config: &Config, progress: impl FnMut(SoFar)) -> Result<Outcome> {
    stop_on_signals();
    sys::wake_exactly();
    let mut engine = Engine::new(config)?;
    sys::sleep_until(config.start_at_ns);
    let before = (sys::thread_cpu_ns(), runqueue_ns(), sys::now_ns());
    engine.run(progress)?;
    engine.outcome.cpu_ns = sys::thread_cpu_ns() - before.0;
    engine.outcome.runqueue_ns = runqueue_ns() - before.1;
    engine.outcome.wall_ns = sys::now_ns() - before.2;
    Ok(engine.finish())
}

/// Time in which this process's main thread waited for a CPU; 0 if the kernel does not report it.
fn runqueue_ns() -> i64 {
    kit_proc::scheduled_ns(std::process::id()).map_or(0, |(_, waited)| waited as i64)
}

struct Engine<'a> {
    config: &'a Config,
    workload: Workload,
    security: Option<Security>,
    watch: Option<Watch>,
    epoll: Epoll,
    spool: Spool,
    outcome: Outcome,
    lateness: Delays,
    reply_lateness: Delays,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    next_number: u32,
    /// Connections that are not in the phase `Ending`.
    live: u32,
    /// Jobs that are on a connection.
    under_way: u64,
    in_flight: Counter,
    /// Open loop: connections without a job, and jobs without a connection.
    idle: Vec<u64>,
    queue: VecDeque<Job>,
    arrivals: Option<Arrivals>,
    /// Closed loop: each client's connection, and when clients ask next.
    clients: Vec<Option<u64>>,
    ready: VecDeque<(i64, u32)>,
    timers: BinaryHeap<Reverse<(i64, u32)>>,
    /// Time limits: when it expires, which connection, and the number of its job.
    limits: VecDeque<(i64, u64, u32)>,
    left: Option<u64>,
    draining: bool,
}

fn token(index: usize, number: u32) -> u64 {
    index as u64 | u64::from(number) << 32
}

impl<'a> Engine<'a> {
    fn new(config: &'a Config) -> Result<Engine<'a>> {
        let spool = Spool::create(&config.spool)
            .with_context(|| format!("cannot write {}", config.spool.display()))?;
        let workload = Workload::new(
            &config.spec,
            config.seed,
            config.checked_share,
            config.process,
            config.processes,
        )?;
        let security = config.tls.as_ref().map(|tls| {
            anyhow::Ok(Security {
                client: tls.client()?,
                name: tls.server_name()?,
            })
        });
        let mut engine = Engine {
            config,
            workload: workload.shaped(config.shape.clone()),
            security: security.transpose()?,
            watch: config.watched.then(|| Watch::new(0)),
            epoll: Epoll::new().context("cannot make an epoll descriptor")?,
            spool,
            outcome: Outcome::default(),
            lateness: Delays::default(),
            reply_lateness: Delays::default(),
            connections: Vec::new(),
            free: Vec::new(),
            next_number: 0,
            live: 0,
            under_way: 0,
            in_flight: Counter::new(config.warmup_ns, config.duration_ns),
            idle: Vec::new(),
            queue: VecDeque::new(),
            arrivals: None,
            clients: Vec::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            limits: VecDeque::new(),
            left: config.requests,
            draining: false,
        };
        match &config.mode {
            Mode::Open { steps, poisson } => {
                engine.arrivals = Some(Arrivals::Rates(Rates::new(
                    steps,
                    *poisson,
                    config.seed,
                    config.process,
                    config.processes,
                )));
            }
            Mode::Replay { starts } => {
                engine.arrivals = Some(Arrivals::Listed(starts.clone().into_iter()));
            }
            Mode::Closed { .. } | Mode::Paced { .. } => {
                engine.outcome.clients = vec![(0, 0); config.connections as usize];
                engine.clients = vec![None; config.connections as usize];
                for client in 0..config.connections {
                    let begin = i64::from(client) * STAGGER_NS;
                    engine.timers.push(Reverse((begin, client)));
                }
            }
        }
        Ok(engine)
    }

    fn now(&self) -> i64 {
        sys::now_ns() - self.config.start_at_ns
    }

    fn run(&mut self, mut progress: impl FnMut(SoFar)) -> Result<()> {
        let mut events = vec![Event { events: 0, u64: 0 }; 512];
        let mut buffer = vec![0; BUFFER];
        let mut drained_by = i64::MAX;
        let mut next_progress = PROGRESS_NS;
        loop {
            let now = self.now();
            if STOP.load(Ordering::Relaxed) {
                self.outcome.interrupted = true;
                return Ok(());
            }
            if self.outcome.spool_error.is_some() {
                return Ok(());
            }
            if !self.draining && (now >= self.config.duration_ns || self.left == Some(0)) {
                // Requests that have become due since the last check.
                self.start_arrivals();
                self.draining = true;
                drained_by = now + self.config.timeout_ns;
            }
            let nothing_left = self.under_way == 0 && self.queue.is_empty();
            if self.draining && (nothing_left || now >= drained_by) {
                return Ok(());
            }
            if now >= next_progress {
                progress(SoFar {
                    rows: self.outcome.rows,
                    failures: self.outcome.failures,
                    recent: self.watch.as_mut().map(|watch| watch.take(now)),
                });
                next_progress = now + PROGRESS_NS;
            }
            self.start_due();
            self.expire(now);
            let wait = self.next_due(now.min(drained_by)).clamp(0, LONGEST_WAIT_NS);
            let ready = self
                .epoll
                .wait(&mut events, wait)
                .context("cannot wait for events")?;
            let woken = self.now();
            for event in ready {
                self.reply_lateness.record(self.now() - woken);
                self.handle(event.u64, event.events, &mut buffer);
                // A due start must not wait until all of many replies have been processed.
                self.start_due();
            }
        }
    }

    /// The time until something is due, if no event comes before.
    fn next_due(&self, now: i64) -> i64 {
        let mut due = now + LONGEST_WAIT_NS;
        if !self.draining {
            due = due.min(self.config.duration_ns);
            if let Some(arrival) = self.arrivals.as_ref().and_then(Arrivals::peek) {
                due = due.min(arrival);
            }
            if let Some(Reverse((timer, _))) = self.timers.peek() {
                due = due.min(*timer);
            }
        }
        if let Some((limit, _, _)) = self.limits.front() {
            due = due.min(*limit);
        }
        due - self.now()
    }

    /// Starts what is due by now.
    fn start_due(&mut self) {
        self.start_queued();
        if self.draining {
            return;
        }
        while let Some((intended, client)) = self.ready.pop_front() {
            self.begin(intended, client);
        }
        let mut now = self.now();
        while let Some(Reverse((intended, client))) = self.timers.peek().copied() {
            if intended > now {
                break;
            }
            self.timers.pop();
            // Starts that coincide with the first connect do not count as late.
            if !matches!(self.config.mode, Mode::Closed { think_ns: 0 }) {
                self.lateness.record(now - intended);
            }
            self.begin(intended, client);
            now = self.now();
        }
        self.start_arrivals();
    }

    /// Starts the requests of an open loop that are due.
    fn start_arrivals(&mut self) {
        while let Some(intended) = self.arrivals.as_ref().and_then(Arrivals::peek) {
            let now = self.now();
            if intended > now || intended >= self.config.duration_ns {
                break;
            }
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
            self.lateness.record(now - intended);
            self.begin(intended, 0);
        }
    }

    /// The next request of the workload.
    fn begin(&mut self, intended_ns: i64, client: u32) {
        match &mut self.left {
            Some(0) => return,
            Some(left) => *left -= 1,
            None => {}
        }
        let now = self.now();
        self.in_flight.begin(intended_ns, now);
        let job = Job {
            intended_ns,
            start_ns: None,
            first_byte_ns: None,
            request: self.workload.draw(),
            client,
            retried: false,
        };
        if self.arrivals.is_some() {
            self.queue.push_back(job);
            self.start_queued();
        } else {
            self.start_of_client(job);
        }
    }

    fn start_queued(&mut self) {
        while !self.queue.is_empty() {
            let free = loop {
                match self.idle.pop() {
                    Some(token) if self.is_idle(token) => break Some(token),
                    Some(_) => {}
                    None => break None,
                }
            };
            if free.is_none() && self.live >= self.config.connections {
                return;
            }
            let Some(job) = self.queue.pop_front() else {
                return;
            };
            match free {
                Some(token) => self.put_on(token, job),
                None => self.connect(job),
            }
        }
    }

    fn start_of_client(&mut self, job: Job) {
        let its = self.clients.get(job.client as usize).copied().flatten();
        match its.filter(|token| self.is_idle(*token)) {
            Some(token) => self.put_on(token, job),
            None => self.connect(job),
        }
    }

    fn get(&mut self, token: u64) -> Option<&mut Connection> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let connection = self.connections.get_mut(index)?.as_deref_mut()?;
        (u64::from(connection.number) == token >> 32).then_some(connection)
    }

    fn is_idle(&mut self, token: u64) -> bool {
        self.get(token)
            .is_some_and(|connection| connection.phase == Phase::Idle)
    }

    fn connect(&mut self, job: Job) {
        let now = self.now();
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let token = token(index, number);
        let opened = sys::connect(&self.config.address).and_then(|socket| {
            self.epoll.add(&socket, token)?;
            Transport::new(socket, self.security.as_ref())
        });
        match opened {
            Ok(transport) => {
                let connection = Connection::new(transport, number, now);
                self.connections[index] = Some(Box::new(connection));
                self.live += 1;
                self.outcome.opened += 1;
                if let Some(its) = self.clients.get_mut(job.client as usize) {
                    *its = Some(token);
                }
                self.assign(token, job);
                self.limits
                    .push_back((now + self.config.timeout_ns, token, 0));
            }
            Err(error) => {
                self.free.push(index);
                let row = Row {
                    connection: number,
                    ..self.row(&job, now)
                };
                self.keep(Row {
                    failure: Some(failure(&error)),
                    ..row
                });
                self.next_of_client(&job, now + RETRY_NS, 0);
            }
        }
    }

    /// Gives a job to a connection that can take one.
    fn assign(&mut self, token: u64, job: Job) {
        self.under_way += 1;
        let per_connection = self.config.requests_per_connection;
        let expected = match job.request.checked {
            true => self.workload.expected(&job.request),
            false => None,
        };
        let index = (token & u64::from(u32::MAX)) as usize;
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        let last = per_connection.is_some_and(|most| connection.served + 1 >= most);
        connection.last = last;
        let (workload, host) = (&self.workload, &self.config.host);
        let bodiless = workload.shape().replies_are_bodiless();
        connection.take(job, expected, bodiless, |out| {
            workload.render(&job.request, host, last, out)
        });
    }

    fn put_on(&mut self, token: u64, job: Job) {
        self.assign(token, job);
        let now = self.now();
        let timeout = self.config.timeout_ns;
        if let Some(connection) = self.get(token) {
            connection.phase = Phase::Busy;
            let served = connection.served;
            self.limits.push_back((now + timeout, token, served));
        }
        self.write(token);
    }

    fn write(&mut self, token: u64) {
        let now = self.now();
        let Some(connection) = self.get(token) else {
            return;
        };
        if let Some(job) = &mut connection.job {
            job.start_ns.get_or_insert(now);
        }
        if let Err(failure) = connection.send() {
            self.retry_or_fail(token, failure);
        }
    }

    fn handle(&mut self, token: u64, events: u32, buffer: &mut [u8]) {
        let has = |flags: i32| events & flags as u32 != 0;
        let ending = has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR);
        let Some(connection) = self.get(token) else {
            return;
        };
        // Data after a handshake may have been read from the socket together with it, and causes no further
        // event.
        let secured = connection.phase == Phase::Securing;
        if connection.phase == Phase::Connecting {
            if !has(libc::EPOLLOUT) && !ending {
                return;
            }
            if let Err(error) = sys::connected(connection.transport.socket()) {
                return self.fail(token, failure(&error));
            }
            connection.local_port = sys::local_port(connection.transport.socket());
            connection.phase = Phase::Securing;
            self.connected(token);
        }
        if self
            .get(token)
            .is_some_and(|its| its.phase == Phase::Securing)
            && !self.secure(token)
        {
            return;
        }
        let start_at = self.config.start_at_ns;
        let Some(connection) = self.get(token) else {
            return;
        };
        match connection.phase {
            Phase::Busy => {
                if has(libc::EPOLLOUT) {
                    if let Err(failure) = connection.send() {
                        return self.retry_or_fail(token, failure);
                    }
                }
                if has(libc::EPOLLIN) || ending || secured {
                    let now = || sys::now_ns() - start_at;
                    match connection.receive(buffer, ending, now) {
                        Progress::Waiting => {}
                        Progress::Done { surplus } => self.complete(token, surplus),
                        Progress::Ended => self.ended(token),
                        Progress::Failed(failure) => self.retry_or_fail(token, failure),
                    }
                }
            }
            Phase::Idle | Phase::Ending if has(libc::EPOLLIN) || ending => {
                let came = connection.transport.receive(buffer);
                match came {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Ok(length) if length > 0 => {
                        self.outcome.unsolicited += 1;
                        self.close(token);
                    }
                    _ => self.close(token),
                }
            }
            _ => {}
        }
    }

    fn connected(&mut self, token: u64) {
        let now = self.now();
        if let Some(opening) = self.get(token).and_then(|its| its.opening.as_mut()) {
            opening.connect_ns = Some(now - opening.begun_ns);
        }
    }

    /// Continues the TLS handshake, if there is one, and then sends the request. Returns whether the handshake
    /// is done.
    fn secure(&mut self, token: u64) -> bool {
        let Some(connection) = self.get(token) else {
            return false;
        };
        match connection.transport.handshake() {
            Ok(false) => return false,
            Ok(true) => connection.phase = Phase::Busy,
            Err(error) => {
                self.fail(token, failure(&error));
                return false;
            }
        }
        if self.security.is_some() {
            let now = self.now();
            let unknown = self.outcome.tls.is_none();
            let Some(connection) = self.get(token) else {
                return false;
            };
            if let Some(opening) = &mut connection.opening {
                let connected = opening.begun_ns + opening.connect_ns.unwrap_or(0);
                opening.tls_ns = Some(now - connected);
            }
            if unknown {
                self.outcome.tls = connection.transport.protocol();
            }
        }
        self.write(token);
        true
    }
}
