//! `debox run` without privilege: the broker has the probes. Everything about the command's own files and processes is
//! looked up here, with the rights of their owner.
//!
//! The command does not depend on the broker. When the broker has gone, what it has sent so far is kept; when a broker
//! is back, the command's processes are enrolled again. The report says what is missing.

mod events;
mod fetched;
mod gone;
mod link;
mod look;
mod progress;
mod records;
mod report;
mod tap;
mod waits;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Result};

use super::client::{self, Trouble};
use super::protocol::{FrameText, Reply, Request};
use crate::clock::monotonic_ns;
use crate::collect::Snapshot;
use crate::deadlock::Watch;
use crate::kernel;
use crate::options::Options;
use crate::report::Deadlock;
use crate::session::Events;
use crate::targets::{is_spared, LeftOut};
use crate::tree;
use crate::trigger::{Counts, Fired, Listed};
use crate::usertap::TapServer;
use crate::waited::Waits;
use fetched::{Fetched, NEVER};
use link::{connect, enrol, is_alive, open, patience_after};
use progress::{Checkpoint, Gone, FIRST_CHECKPOINT, LONGEST_CHECKPOINT};

/// So many descriptors of processes are kept before those of ended ones are closed.
const TARGETS: usize = 64;

/// A session that the broker has open for this process.
pub struct RemoteSession {
    connection: OwnedFd,
    options: Options,
    events: RefCell<Events>,
    tap: Option<TapServer>,
    started: Instant,
    checkpoint: Option<Checkpoint>,
    next_checkpoint: Instant,
    /// The time until the next checkpoint.
    interval: Duration,
    /// The command's process, or those that it was attached to.
    targets: Vec<(u32, OwnedFd)>,
    /// With so many, those that have ended are dropped.
    tidy_at: usize,
    /// Why the broker is no longer asked.
    gone: Option<Gone>,
    patience: Duration,
    /// Results of sessions that ended with their broker, and the places that they refer to.
    past: Option<Snapshot>,
    places: Vec<(u64, FrameText)>,
    gaps: Vec<String>,
    watch: Watch,
    deadlocks: Vec<Deadlock>,
    /// Processes that the broker refused to enrol.
    left_out: LeftOut,
    wants_samples: bool,
    /// What threads waited for shortly before the end.
    waited: Waits,
    fetched: Fetched,
    listed: Listed,
    /// Of sessions that ended with their broker and, when the report is made, of the last one.
    trigger_counts: Vec<Counts>,
}

impl RemoteSession {
    /// Opens a session with the broker at a socket.
    pub fn open(path: &Path, mut options: Options) -> Result<RemoteSession> {
        if options.user_stamps {
            bail!(
                "the program's own times of its calls (--user-level) are not available through the broker: run \
                 debox with sudo"
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
        crate::options::check::require_triggers(&options)?;
        let asked = Instant::now();
        let (connection, tap) = connect(path, &options, client::HELLO, client::WORK)?;
        let started = Instant::now();
        let patience = patience_after(started - asked);
        client::be_patient(&connection, patience)?;
        Ok(RemoteSession {
            connection,
            listed: Listed::new(&options.triggers),
            trigger_counts: vec![Counts::default(); options.triggers.len()],
            events: RefCell::default(),
            tap,
            started,
            checkpoint: None,
            // A view is not continued when the broker has gone.
            next_checkpoint: started
                + if options.live {
                    NEVER
                } else {
                    FIRST_CHECKPOINT
                },
            interval: FIRST_CHECKPOINT,
            targets: Vec::new(),
            gone: None,
            patience,
            past: None,
            places: Vec::new(),
            gaps: Vec::new(),
            watch: Watch::default(),
            deadlocks: Vec::new(),
            left_out: LeftOut::default(),
            tidy_at: TARGETS,
            wants_samples,
            waited: Waits::new(),
            fetched: Fetched::default(),
            options,
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

    /// Enrols a process that is already running, without its children.
    pub(crate) fn enrol_one(&mut self, pid: u32) -> Result<()> {
        self.targets.push((pid, open(pid)?));
        match enrol(&self.connection, pid, true)? {
            0 => bail!("{}", not_enrolled(pid)),
            _ => {
                let titles = &mut self.events.get_mut().titles;
                titles.add_running(pid, monotonic_ns());
                Ok(())
            }
        }
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
                let titles = &mut self.events.get_mut().titles;
                titles.add_running(pid, monotonic_ns());
            }
            Ok(new)
        })?;
        match pids.iter().find(|pid| !enrolled.contains(pid)) {
            Some(pid) => bail!(left_out.remove(pid).unwrap_or_else(|| not_enrolled(*pid))),
            None => {
                for why in left_out.into_values() {
                    self.left_out.add(why);
                }
                Ok(())
            }
        }
    }

    /// Enrols processes that became members of what is monitored, with their descendants. Returns those of which
    /// nothing was monitored before; others may have ended, or are left out.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        let mut enrolled = Vec::new();
        for pid in tree::processes(pids, !self.options.one_process) {
            if is_spared(pid) || self.gone.is_some() {
                continue;
            }
            let entered = open(pid).and_then(|process| {
                let new = enrol(&self.connection, pid, true)?;
                Ok((process, new))
            });
            match entered {
                Ok((process, new)) if new > 0 => {
                    self.hold(pid, process);
                    let titles = &mut self.events.get_mut().titles;
                    titles.add_running(pid, monotonic_ns());
                    enrolled.push(pid);
                }
                // All of it is monitored already, it has ended, or the probe refused it.
                Ok(_) => {
                    if self.threads_alive(pid)? == 0 && kernel::require_process(pid).is_ok() {
                        self.left_out.add(not_enrolled(pid));
                    }
                }
                Err(error) => {
                    if kernel::require_process(pid).is_ok() {
                        self.left_out.add(format!("{error:#}"));
                    }
                }
            }
        }
        Ok(enrolled)
    }

    /// Processes that should be monitored and are not, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        self.left_out.notes()
    }

    /// Keeps a process's descriptor. Those of processes that have ended are closed: members come and go.
    fn hold(&mut self, pid: u32, process: OwnedFd) {
        if self.targets.len() >= self.tidy_at {
            self.targets.retain(|(_, process)| is_alive(process));
            self.tidy_at = TARGETS.max(2 * self.targets.len());
        }
        self.targets.push((pid, process));
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

    fn keep_up(&mut self, timeout: Duration) -> Result<()> {
        if !self.options.live {
            self.events.get_mut().titles.look();
        }
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

    /// Registers `hook` to be called for each call for which a trigger fires, while events are received.
    pub(crate) fn on_trigger(&mut self, hook: impl FnMut(&Fired) + 'static) {
        self.listed.set_hook(Box::new(hook));
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The deadlocks found so far.
    pub(crate) fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
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
}

fn not_enrolled(pid: u32) -> String {
    format!("process {pid} cannot be inspected (PR_SET_DUMPABLE), or has ended")
}

impl fmt::Debug for RemoteSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSession").finish_non_exhaustive()
    }
}

impl std::error::Error for Trouble {}
