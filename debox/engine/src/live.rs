// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads wait for, from one look to the next.
//!
//! The kernel sums the waits by thread, place, resource and owner, so a look costs what has happened since the last
//! one, not what every call cost. Waits that have not ended are read from the table of threads.

mod open_waits;
mod rows;
mod thread_id;
mod thread_times;

pub use rows::{Holder, LiveWait, Waker};
pub use thread_times::LiveThread;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::clock::monotonic_ns;
use crate::collect::cpu_owner_kind;
use crate::history::Text;
use crate::options::{Detail, Options};
use crate::recorder::texts::Texts;
use crate::report::CpuWaitKind;
use crate::session::Session;
use crate::tables;
use open_waits::OpenWaits;
use thread_times::ThreadTimes;

/// A session that is looked at.
pub struct Live {
    session: Session,
    texts: Texts,
    times: ThreadTimes,
    open: OpenWaits,
    /// What each process has had of CPUs that others waited for, until the last look.
    cpu_ns: HashMap<(u32, u32), u64>,
    lost: (u64, u64),
    looked_ns: u64,
}

/// What happened between two looks.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub from_ns: u64,
    pub to_ns: u64,
    /// In no order. Each wait's time in this interval is in one of them.
    pub waits: Vec<LiveWait>,
    pub threads: Vec<LiveThread>,
    /// Who had the CPU that threads waited for, the longest first.
    pub cpu: Vec<CpuHeld>,
    /// Waits that the tables had no room for, and their time.
    pub lost_waits: u64,
    pub lost_ns: u64,
    /// Threads that there was no room for, since the beginning.
    pub lost_threads: u64,
    /// How long the look took.
    pub took: Duration,
}

/// How long somebody had CPUs that threads waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuHeld {
    pub kind: CpuWaitKind,
    pub pid: Option<u32>,
    pub comm: Option<Text>,
    pub ns: u64,
}

impl Live {
    /// Loads and attaches the probes. `one_process`: children of monitored processes are left out.
    pub fn open(max_threads: u32, one_process: bool) -> Result<Live> {
        let detail = Detail {
            sleeps: true,
            cpu: true,
            ..Detail::default()
        };
        let session = Session::open(Options {
            detail,
            max_threads,
            adopts_sleeps: true,
            live: true,
            one_process,
            ..Options::default()
        })?;
        Ok(Live {
            texts: Texts::new(detail),
            session,
            times: ThreadTimes::default(),
            open: OpenWaits::default(),
            cpu_ns: HashMap::new(),
            lost: (0, 0),
            looked_ns: monotonic_ns(),
        })
    }

    /// Enrols running processes, with their descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        self.session.enrol_running(pids)
    }

    /// Enrols processes that became members of what is monitored. Returns those of which nothing was monitored before.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        self.session.enrol_members(pids)
    }

    /// A descriptor that is readable when events are waiting.
    pub fn events_fd(&self) -> Option<i32> {
        Some(self.session.events_fd())
    }

    /// Whether anything is monitored.
    pub fn has_threads(&self) -> Result<bool> {
        self.session.has_threads()
    }

    /// Receives events for up to `timeout`.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        self.session.poll(timeout)
    }

    /// What has happened since the last look.
    pub fn look(&mut self) -> Result<Look> {
        let began = Instant::now();
        self.session.poll(Duration::ZERO)?;
        let rows = self.session.take_live()?;
        let (from_ns, to_ns) = (self.looked_ns, monotonic_ns());
        let living = self.session.living_threads()?;
        let ended = self.session.take_ended();
        let mut waits: Vec<LiveWait> = rows
            .iter()
            .map(|(key, row)| rows::wait(&mut self.texts, &self.session, key, row))
            .collect();
        let open = self.open.look(
            &mut self.session,
            &mut self.texts,
            &living,
            (from_ns, to_ns),
        )?;
        self.open.take_out_shown(&mut waits);
        waits.extend(open);
        let threads = self.times.look(&mut self.texts, &living, &ended, to_ns);
        let lost = self.session.live_lost();
        let lost_before = std::mem::replace(&mut self.lost, lost);
        self.looked_ns = to_ns;
        Ok(Look {
            from_ns,
            to_ns,
            waits,
            threads,
            cpu: self.cpu_held()?,
            lost_waits: lost.0.saturating_sub(lost_before.0),
            lost_ns: lost.1.saturating_sub(lost_before.1),
            lost_threads: self.session.lost()?.threads,
            took: began.elapsed(),
        })
    }

    fn cpu_held(&mut self) -> Result<Vec<CpuHeld>> {
        let mut sums: HashMap<(u32, u32), (u64, [i8; 16])> = HashMap::new();
        for (key, row) in self.session.cpu_owners()? {
            let sum = sums.entry((key.kind, key.tgid)).or_insert((0, row.comm));
            tables::add(&mut sum.0, row.ns);
        }
        let mut held = Vec::new();
        for (who, (ns, comm)) in &sums {
            let before = self.cpu_ns.get(who).copied().unwrap_or(0);
            // A sum that was forgotten begins again.
            let more = if *ns < before { *ns } else { ns - before };
            if more > 0 {
                held.push(self.held(*who, comm, more));
            }
        }
        self.cpu_ns = sums.into_iter().map(|(who, (ns, _))| (who, ns)).collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.ns));
        Ok(held)
    }

    fn held(&mut self, (kind, tgid): (u32, u32), comm: &[i8; 16], ns: u64) -> CpuHeld {
        let is_process = kind == tables::CPU_OWNER_TASK || kind == tables::CPU_OWNER_KERNEL;
        CpuHeld {
            kind: cpu_owner_kind(kind),
            pid: is_process.then_some(tgid),
            comm: is_process.then(|| self.texts.comm(comm)),
            ns,
        }
    }
}
