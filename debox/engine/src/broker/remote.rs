//! `debox run` without privilege: the broker has the probes. Everything about the command's own files and processes is
//! looked up here, with the rights of their owner.
//!
//! The command does not depend on the broker. When the broker has gone, what it has sent so far is kept; when a broker
//! is back, the command's processes are enrolled again. The report says what is missing.

mod tap;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::MsgFlags;

use super::channel;
use super::client::{self, Trouble};
use super::probe_data::{Shape, ShapeKey};
use super::protocol::{self, FrameText, Reply, Request, RunWish, BULK};
use super::wire::{self, Received};
use crate::broker;
use crate::clock::monotonic_ns;
use crate::collect::{Outcome, Snapshot};
use crate::deadlock::tasks::threads;
use crate::deadlock::{Wait, Watch};
use crate::explain::{Explainer, UserStack};
use crate::kernel;
use crate::options::{Options, Tap};
use crate::report::{Deadlock, Report};
use crate::session::{in_words, Events, STACK_NAMES};
use crate::stack_table::StackTable;
use crate::stacks::of_sleeper;
use crate::symbols::{Frame, Symbols};
use crate::tables::{self, types};
use crate::targets::is_spared;
use crate::tree;
use crate::usertap::TapServer;
use crate::waited::{waits_of, Waits};

/// The results so far are fetched after this time, and then at intervals that double each time, up to the longest.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);
const LONGEST_CHECKPOINT: Duration = Duration::from_secs(16);

/// How long the end of a session is waited for.
const LEAVE_TAKING_MS: u16 = 2000;

/// How long the greeting of a new broker is waited for. The limit is short because the command may end meanwhile.
const RETURN_PATIENCE: Duration = Duration::from_secs(2);

/// The broker's answers are waited for this many times as long as its slowest answer so far took. That includes
/// opening the session, which is as much work as any. So a stopped broker delays the report of a finished run by some
/// seconds only, and a slow machine gets enough time.
const PATIENCE_TIMES: u32 = 10;
const PATIENCE_LEAST: Duration = Duration::from_secs(5);

/// The largest report that is accepted.
const REPORT_MAX: u64 = 256 << 20;

/// A session that the broker has open for this process.
pub struct RemoteSession {
    connection: OwnedFd,
    options: Options,
    events: Events,
    tap: Option<TapServer>,
    started: Instant,
    checkpoint: Option<Checkpoint>,
    next_checkpoint: Instant,
    /// The time until the next checkpoint.
    interval: Duration,
    /// The command's process, or those that it was attached to.
    targets: Vec<(u32, OwnedFd)>,
    /// Why the broker is no longer asked.
    gone: Option<Gone>,
    patience: Duration,
    /// Results of sessions that ended with their broker, and the places that they refer to.
    past: Option<Snapshot>,
    places: Vec<(u64, FrameText)>,
    gaps: Vec<String>,
    watch: Watch,
    deadlocks: Vec<Deadlock>,
    /// Processes that the broker refused to enrol, in sentences.
    left_out: Vec<String>,
    wants_samples: bool,
}

/// The state after a broker has gone or does not answer.
struct Gone {
    /// The beginning of a sentence.
    how: String,
    next_try: Instant,
    interval: Duration,
}

impl Gone {
    fn because(error: &anyhow::Error, patience: Duration) -> Gone {
        let how = if broker::is_silent(error) {
            let seconds = patience.as_secs();
            format!(
                "The broker did not answer for {seconds} s during the run, and was asked no more"
            )
        } else {
            format!("The broker ended during the run ({error:#})")
        };
        Gone {
            how,
            next_try: Instant::now() + FIRST_CHECKPOINT,
            interval: FIRST_CHECKPOINT,
        }
    }
}

/// The results up to some time.
struct Checkpoint {
    at: Duration,
    /// Without the threads that had ended.
    snapshot: Snapshot,
    frames: Vec<(u64, FrameText)>,
    /// How many listed threads had ended by then, and the sums of the unlisted ones.
    ended: usize,
    ended_unlisted: Vec<types::thread>,
}

impl RemoteSession {
    /// Opens a session with the broker at a socket.
    pub fn open(path: &Path, mut options: Options) -> Result<RemoteSession> {
        if !options.triggers.is_empty() {
            bail!(
                "triggers (--trigger) are not offered through the broker: run it with sudo, without {}",
                broker::VARIABLE
            );
        }
        if options.trace.is_some() {
            bail!(
                "the call tree inside the kernel (--trace) is not available through the broker: run \
                 debox with sudo"
            );
        }
        // Samples are requested by default: the report says that they are missing.
        let wants_samples = std::mem::take(&mut options.detail.samples);
        crate::options::check::require_tap(&options)?;
        let asked = Instant::now();
        let (connection, tap) = connect(path, &options, client::HELLO, client::WORK)?;
        let started = Instant::now();
        let patience = patience_after(started - asked);
        client::be_patient(&connection, patience)?;
        Ok(RemoteSession {
            connection,
            options,
            events: Events::default(),
            tap,
            started,
            checkpoint: None,
            next_checkpoint: started + FIRST_CHECKPOINT,
            interval: FIRST_CHECKPOINT,
            targets: Vec::new(),
            gone: None,
            patience,
            past: None,
            places: Vec::new(),
            gaps: Vec::new(),
            watch: Watch::default(),
            deadlocks: Vec::new(),
            left_out: Vec::new(),
            wants_samples,
        })
    }

    /// What a process needs in its environment to find this session's user tap.
    pub fn tap_address(&self) -> Option<&str> {
        self.tap.as_ref().map(|tap| tap.address.as_str())
    }

    /// Enrols a child of this process from its next `execve` on.
    pub fn enrol(&mut self, pid: u32) -> Result<()> {
        self.targets.push((pid, open(pid)?));
        enrol(&self.connection, pid, false).map(drop)
    }

    /// Enrols processes that are already running and, unless the session is for one process only, all their
    /// descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        for pid in pids {
            self.targets.push((*pid, open(*pid)?));
        }
        let (mut enrolled, mut left_out) = (BTreeSet::new(), BTreeMap::new());
        tree::enrol_all(pids, !self.options.one_process, |pid| {
            if is_spared(pid) && !pids.contains(&pid) {
                return Ok(0);
            }
            let new = enrol(&self.connection, pid, true).inspect_err(|why| {
                if kernel::require_process(pid).is_ok() {
                    left_out.insert(pid, why.to_string());
                }
            })?;
            if new > 0 && enrolled.insert(pid) {
                self.events.titles.add_running(pid, monotonic_ns());
            }
            Ok(new)
        })?;
        match pids.iter().find(|pid| !enrolled.contains(pid)) {
            Some(pid) => bail!("process {pid} cannot be inspected (PR_SET_DUMPABLE), or has ended"),
            None => {
                let notes = left_out.into_values();
                self.left_out = notes.map(|why| format!("Not monitored: {why}.")).collect();
                Ok(())
            }
        }
    }

    /// Enrols processes that became members of what is monitored, with their descendants. Returns those of which
    /// nothing was monitored before; others may have ended, or the broker refused them.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        let mut enrolled = Vec::new();
        for pid in tree::processes(pids, !self.options.one_process) {
            let Ok(process) = open(pid) else { continue };
            if is_spared(pid) || self.gone.is_some() {
                continue;
            }
            if enrol(&self.connection, pid, true).is_ok_and(|new| new > 0) {
                self.targets.push((pid, process));
                self.events.titles.add_running(pid, monotonic_ns());
                enrolled.push(pid);
            }
        }
        Ok(enrolled)
    }

    /// Receives events for up to `timeout`, and looks up what they refer to while it still exists.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        match &self.gone {
            None => {
                if let Err(error) = self.keep_up(timeout) {
                    self.gone = Some(Gone::because(&error, self.patience));
                }
            }
            Some(gone) => {
                std::thread::sleep(timeout);
                if Instant::now() >= gone.next_try {
                    self.come_back();
                }
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.refresh_clock();
        }
        if self.watch.is_due() {
            self.look_for_deadlocks();
        }
        Ok(())
    }

    /// What threads wait for now, read with this process's own rights, as below.
    fn waits(&mut self) -> Waits {
        if !self.options.detail.sleeps {
            return Waits::new();
        }
        let processes = self.living();
        let tids = processes.iter().flat_map(|pid| threads(*pid));
        waits_of(tids, &mut self.events.resources)
    }

    /// The monitored processes.
    fn living(&self) -> Vec<u32> {
        let alive = self.targets.iter().filter(|(_, process)| is_alive(process));
        let alive: Vec<u32> = alive.map(|(pid, _)| *pid).collect();
        tree::processes(&alive, !self.options.one_process)
    }

    /// Looks for deadlocks with this process's own rights: the broker does not inspect its clients' processes.
    fn look_for_deadlocks(&mut self) {
        if !self.options.detail.sleeps {
            return;
        }
        let processes = self.living();
        let found_ns = self.started.elapsed().as_nanos() as u64;
        for circle in self.watch.look_at(&processes) {
            let waits = circle.waits.iter().enumerate();
            let stacks = waits.map(|(at, wait)| self.stack_of(wait, at as u64));
            let stacks: Vec<UserStack> = stacks.collect();
            let resources = &mut self.events.resources;
            let deadlock = in_words(&circle, found_ns, stacks, resources);
            self.deadlocks.push(deadlock);
        }
    }

    /// The user stack of a waiting thread, in words.
    fn stack_of(&self, wait: &Wait, at: u64) -> UserStack {
        let name = STACK_NAMES - at - ((self.deadlocks.len() as u64) << 32);
        let events = &self.events;
        {
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = of_sleeper(wait.pid, wait.tid, name, &mut processes) else {
                return UserStack::default();
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
        }
        let nothing = StackTable::new(self.options.detail.callsites);
        Explainer::new(&nothing, &events.processes, &events.stacks).user_stack(name)
    }

    /// Looks for a new broker and enrols the command's running processes there.
    fn come_back(&mut self) {
        // Programs under the user tap keep the slots that they have mapped.
        let (Some(gone), Tap::Kernel) = (&mut self.gone, self.options.tap) else {
            return;
        };
        let found = broker::socket_path().context("no broker is asked");
        let (options, patience) = (&self.options, self.patience);
        let found = found.and_then(|path| connect(&path, options, RETURN_PATIENCE, patience));
        let enrolled = found.and_then(|(connection, _)| {
            let alive = self.targets.iter().filter(|(_, process)| is_alive(process));
            let alive: Vec<u32> = alive.map(|(pid, _)| *pid).collect();
            let with_children = !options.one_process;
            tree::enrol_all(&alive, with_children, |pid| enrol(&connection, pid, true))?;
            Ok(connection)
        });
        let connection = match enrolled {
            Ok(connection) => connection,
            Err(error) => {
                if !broker::is_absent(&error) {
                    gone.interval = (gone.interval * 2).min(LONGEST_CHECKPOINT);
                }
                gone.next_try = Instant::now() + gone.interval;
                return;
            }
        };
        let until = self.checkpoint.as_ref().map(|last| last.at);
        self.gaps.push(format!(
            "{}; what happened from {:.1} s to {:.1} s is missing. Processes whose parents had ended \
             by then are not monitored any more.",
            gone.how,
            until.unwrap_or_default().as_secs_f64(),
            self.started.elapsed().as_secs_f64()
        ));
        if let Some(mut last) = self.settle() {
            if let Some(past) = self.past.take() {
                last.add_earlier(past);
            }
            self.past = Some(last);
        }
        self.connection = connection;
        self.gone = None;
        self.events.ended.clear();
        self.events.ended_unlisted.clear();
        self.interval = FIRST_CHECKPOINT;
        self.next_checkpoint = Instant::now() + FIRST_CHECKPOINT;
    }

    fn keep_up(&mut self, timeout: Duration) -> Result<()> {
        self.events.titles.look();
        if self.take_in(timeout)? {
            self.take_all()?;
        }
        if Instant::now() >= self.next_checkpoint {
            let asked = Instant::now();
            self.fetch(false)?;
            self.patience = self.patience.max(patience_after(asked.elapsed()));
            client::be_patient(&self.connection, self.patience)?;
            // Counted from the end of the checkpoint: on a slow machine a report takes longer than the first interval.
            self.next_checkpoint = Instant::now() + self.interval;
            self.interval = (self.interval * 2).min(LONGEST_CHECKPOINT);
        }
        Ok(())
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        match client::ask(&self.connection, request)?.0 {
            Reply::Refused(reason) => bail!("it refuses: {reason}"),
            reply => Ok(reply),
        }
    }

    fn take_all(&mut self) -> Result<()> {
        while self.take_in(Duration::ZERO)? {}
        Ok(())
    }

    /// Waits for events for up to `timeout`; returns whether there are more.
    fn take_in(&mut self, timeout: Duration) -> Result<bool> {
        let wait_ms = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        let (ended, call_sites, resources, titles, is_more) =
            match self.ask(&Request::Events { wait_ms })? {
                Reply::Events {
                    ended,
                    call_sites,
                    resources,
                    titles,
                    is_more,
                } => (ended, call_sites, resources, titles, is_more),
                Reply::Stack(stack) => {
                    self.unwind(&stack.message())?;
                    return Ok(true);
                }
                _ => bail!("its answer is out of turn"),
            };
        for title in &titles {
            self.events.titles.take(&types::title_seen::from(title));
        }
        for thread in &ended {
            self.events.add_ended(&types::thread::from(thread));
        }
        for seen in call_sites.iter().map(types::call_site_seen::from) {
            let wrapper = self.events.processes.borrow_mut().learn(&seen);
            let answer = Request::Wrapper {
                tgid: seen.tgid,
                ip: seen.ip,
                offset: wrapper.offset,
                rule: wrapper.rule,
            };
            let packet = protocol::encode(&answer);
            channel::send(self.connection.as_fd(), &packet, &[], MsgFlags::empty())?;
        }
        for seen in &resources {
            self.events
                .resources
                .learn(&types::resource_seen::from(seen));
        }
        Ok(is_more)
    }

    /// Unwinds a user stack for the probes, and tells them how to recognise it.
    fn unwind(&self, ask: &[u8]) -> Result<()> {
        let answer = {
            let mut processes = self.events.processes.borrow_mut();
            self.events.stacks.borrow_mut().take(ask, &mut processes)
        };
        let Some(answer) = answer else { return Ok(()) };
        let packet = protocol::encode(&Request::Shape {
            key: ShapeKey::from(&answer.key),
            shape: Shape::from(&answer.shape),
        });
        channel::send(self.connection.as_fd(), &packet, &[], MsgFlags::empty())?;
        Ok(())
    }

    /// Fetches the results so far.
    fn fetch(&mut self, is_last: bool) -> Result<()> {
        let Reply::Report { size } = self.ask(&Request::Report { is_last })? else {
            bail!("its answer is out of turn");
        };
        ensure!(size <= REPORT_MAX, "its report is too large");
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let packet = channel::receive(self.connection.as_fd(), BULK, MsgFlags::empty())?;
            bytes.extend(packet.bytes);
        }
        let received = wire::decode(&bytes).context("its report is not understood")?;
        self.keep(received)
    }

    fn keep(&mut self, received: Received) -> Result<()> {
        let Received {
            mut snapshot,
            ended,
            mut frames,
        } = received;
        // Each session numbers its places from 1.
        let base = (self.gaps.len() as u64) << 32;
        let stacks = snapshot.stacks.kernel.values_mut();
        let open = snapshot.open_calls.iter_mut().map(|(_, stack)| stack);
        for number in stacks.chain(open).flatten() {
            *number = number.wrapping_add(base);
        }
        for (number, _) in &mut frames {
            *number = number.wrapping_add(base);
        }
        let mut threads = std::mem::take(&mut snapshot.threads);
        let living = threads.split_off(ended + usize::from(snapshot.unlisted.is_some()));
        for (_, at) in snapshot
            .open_calls
            .iter_mut()
            .map(|(at, stack)| (stack, at))
        {
            *at = at
                .checked_sub(threads.len())
                .context("its report is not understood")?;
        }
        let unlisted = threads.split_off(ended);
        for thread in &threads {
            self.events.add_ended(thread);
        }
        for sum in &unlisted {
            self.events.add_unlisted(sum);
        }
        snapshot.threads = living;
        snapshot.unlisted = None;
        if let Some(tap) = &self.tap {
            let refused = tap.rows.add_to(&mut snapshot.rows)?;
            tables::add(&mut snapshot.refused, refused);
        }
        self.checkpoint = Some(Checkpoint {
            at: self.started.elapsed(),
            snapshot,
            frames,
            ended: self.events.ended.len(),
            ended_unlisted: self.events.ended_unlisted.clone(),
        });
        Ok(())
    }

    /// Whether anything is monitored.
    pub fn has_threads(&mut self) -> Result<bool> {
        let count = self.threads_alive(0)?;
        // When a broker is back, it will monitor them again.
        let waits =
            || self.gone.is_some() && self.targets.iter().any(|(_, process)| is_alive(process));
        Ok(count > 0 || waits())
    }

    /// How many threads of a process are still monitored; 0: of all processes.
    pub fn threads_alive(&mut self, tgid: u32) -> Result<usize> {
        if self.gone.is_some() {
            return Ok(0);
        }
        let alive = match self.ask(&Request::Alive { tgid }) {
            Ok(Reply::Alive { count }) => Ok(count as usize),
            Ok(_) => Err(anyhow!("its answer is out of turn")),
            Err(error) => Err(error),
        };
        Ok(alive.unwrap_or_else(|error| {
            // The report will say so.
            self.gone = Some(Gone::because(&error, self.patience));
            0
        }))
    }

    /// Stops monitoring and reports.
    pub fn finish(mut self, outcome: Outcome) -> Result<Report> {
        self.events.titles.look_at_all();
        let waited = self.waits();
        if self.gone.is_none() {
            let fetched = self.take_all().and_then(|()| self.fetch(true));
            if fetched.is_ok() {
                self.wait_for_its_end();
            }
            let patience = self.patience;
            self.gone = fetched.err().map(|error| Gone::because(&error, patience));
        }
        let mut notes = vec![
            "Measured through the broker: of other users' tasks it shows only that there were \
             some, and waiters for locks are not counted."
                .to_string(),
        ];
        if self.wants_samples {
            notes.push(
                "The program's CPU use was not sampled: the broker takes no samples.".to_string(),
            );
        }
        let incomplete = self.what_is_missing();
        let has_gaps = !self.gaps.is_empty();
        notes.append(&mut self.left_out);
        notes.append(&mut self.gaps);
        notes.extend(incomplete.clone());
        let ran = self.started.elapsed();
        let (last, past) = (self.settle(), self.past.take());
        let mut snapshot = match (last, past) {
            (Some(mut last), Some(past)) => {
                last.add_earlier(past);
                last
            }
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => {
                let now = monotonic_ns();
                let empty = Snapshot::empty(self.options.tap, self.options.detail, now);
                Snapshot {
                    started_ns: now.saturating_sub(ran.as_nanos() as u64),
                    ..empty
                }
            }
        };
        snapshot.notes = notes;
        snapshot.incomplete = incomplete;
        snapshot.deadlocks = std::mem::take(&mut self.deadlocks);
        snapshot.waited = waited;
        let symbols = Symbols::default();
        for (number, text) in self.places {
            symbols.know(number, Frame::from(text));
        }
        let events = &self.events;
        let explainer = Explainer::with_symbols(
            &snapshot.stacks,
            &events.processes,
            &events.stacks,
            symbols.into(),
        );
        let mut report = snapshot.report(outcome, &explainer, &events.resources);
        report.processes = events.titles.list();
        if has_gaps {
            // The first thread in the results may have been born after a gap.
            report.duration_ns = report.duration_ns.max(ran.as_nanos() as u64);
        }
        Ok(report)
    }

    /// Waits until the broker has taken back what it gave, so that the user's next run can get it.
    fn wait_for_its_end(&self) {
        let mut polled = [PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::from(LEAVE_TAKING_MS));
    }

    /// The session's results, as far as they were fetched, with all its threads.
    fn settle(&mut self) -> Option<Snapshot> {
        let Checkpoint {
            mut snapshot,
            frames,
            ended,
            mut ended_unlisted,
            ..
        } = self.checkpoint.take()?;
        self.places.extend(frames);
        let mut threads = std::mem::take(&mut self.events.ended);
        threads.truncate(ended);
        if !ended_unlisted.is_empty() {
            snapshot.unlisted = Some(threads.len());
            threads.append(&mut ended_unlisted);
        }
        for (at, _) in &mut snapshot.open_calls {
            *at += threads.len();
        }
        threads.append(&mut snapshot.threads);
        snapshot.threads = threads;
        snapshot.refuse_impossible();
        Some(snapshot)
    }

    fn what_is_missing(&self) -> Option<String> {
        let gone = self.gone.as_ref()?;
        let ran = self.started.elapsed().as_secs_f64();
        let why = &gone.how;
        Some(match &self.checkpoint {
            None if self.past.is_some() => {
                format!("{why}, once more and before anything else was handed over.")
            }
            None => {
                format!("{why}, before any results were received: nothing is known about the run.")
            }
            Some(checkpoint) => format!(
                "{why}: what happened from {:.1} s to {ran:.1} s is missing.",
                checkpoint.at.as_secs_f64()
            ),
        })
    }
}

fn patience_after(took: Duration) -> Duration {
    (took * PATIENCE_TIMES).clamp(PATIENCE_LEAST, client::WORK)
}

/// Asks a broker for a session, with a time limit for its greeting and one for its further answers.
fn connect(
    path: &Path,
    options: &Options,
    hello: Duration,
    work: Duration,
) -> Result<(OwnedFd, Option<TapServer>)> {
    let (connection, nonce) = client::greet(path, hello)?;
    client::be_patient(&connection, work)?;
    let wish = RunWish::new(options);
    let (reply, slots) = client::ask(&connection, &Request::Run { nonce, wish })?;
    let Reply::Running { slots: count } = reply else {
        return Err(client::unexpected(reply).into());
    };
    let tap = match options.tap {
        Tap::Kernel => None,
        Tap::User => {
            let slots = slots.context("the broker gave no slots")?;
            Some(tap::start(&connection, count, slots)?)
        }
    };
    Ok((connection, tap))
}

fn open(pid: u32) -> Result<OwnedFd> {
    kernel::open_process(pid).with_context(|| format!("there is no process {pid}"))
}

fn is_alive(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut polled, PollTimeout::ZERO), Ok(0))
}

/// Enrols a process; returns how many of its threads were not monitored before.
fn enrol(connection: &OwnedFd, pid: u32, is_running: bool) -> Result<u32> {
    let process = open(pid)?;
    let request = Request::Enrol { is_running };
    match client::ask_about(connection, &request, process.as_fd())? {
        Reply::Enrolled { threads } => Ok(threads),
        Reply::NotEnrolled(why) => bail!(why),
        other => Err(client::unexpected(other).into()),
    }
}

impl fmt::Debug for RemoteSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSession").finish_non_exhaustive()
    }
}

impl std::error::Error for Trouble {}
