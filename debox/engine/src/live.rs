// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads wait for, from one look to the next.
//!
//! The kernel sums the waits by thread, place, resource and owner, so a look costs what has happened since the last
//! one, not what every call cost. Waits that have not ended are read from the table of threads.

mod open_waits;
mod rows;
mod source;
mod thread_id;
mod thread_times;

pub use rows::{Holder, LiveWait, Waker};
pub use thread_times::LiveThread;

use std::time::{Duration, Instant};

use anyhow::Result;
use foldhash::HashMap;

use crate::clock::monotonic_ns;
use crate::collect::cpu_owner_kind;
use crate::history::Text;
use crate::opened;
use crate::options::{Detail, Options};
use crate::recorder::texts::Texts;
use crate::report::CpuWaitKind;
use crate::tables::{self, types};
use open_waits::OpenWaits;
use source::Source;
use thread_times::ThreadTimes;

/// A session that is looked at.
pub struct Live {
    source: Source,
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
    /// What a session for it measures. `one_process`: children of monitored processes are left out.
    pub fn options(max_threads: u32, one_process: bool) -> Options {
        Options {
            detail: Detail {
                sleeps: true,
                cpu: true,
                ..Detail::default()
            },
            max_threads,
            adopts_sleeps: true,
            live: true,
            one_process,
            ..Options::default()
        }
    }

    /// Opens a session, here or at a broker, with options that [`Live::options`] has made.
    pub fn open(options: Options) -> Result<Live> {
        let detail = options.detail;
        let opened = opened::open(options)?;
        let source = Source::of(opened);
        Ok(Live {
            texts: Texts::with_symbols(detail, source.lookups().symbols()),
            source,
            times: ThreadTimes::default(),
            open: OpenWaits::default(),
            cpu_ns: HashMap::default(),
            lost: (0, 0),
            looked_ns: monotonic_ns(),
        })
    }

    /// Enrols running processes, with their descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        self.source.enrol_running(pids)
    }

    /// Enrols processes that became members of what is monitored. Returns those of which nothing was monitored before.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        self.source.enrol_members(pids)
    }

    /// Processes that should be monitored and are not, in sentences.
    pub fn left_out(&self) -> Vec<String> {
        self.source.left_out()
    }

    /// A descriptor that is readable when events are waiting, if there is one.
    pub fn events_fd(&self) -> Option<i32> {
        self.source.events_fd()
    }

    /// Whether anything is monitored.
    pub fn has_threads(&mut self) -> Result<bool> {
        self.source.has_threads()
    }

    /// Receives events for up to `timeout`.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        self.source.poll(timeout)
    }

    /// What has happened since the last look.
    pub fn look(&mut self) -> Result<Look> {
        let began = Instant::now();
        self.source.poll(Duration::ZERO)?;
        let mut tables = self.source.take()?;
        let (from_ns, to_ns) = (self.looked_ns, monotonic_ns());
        let lookups = self.source.lookups();
        let mut waits: Vec<LiveWait> = tables
            .rows
            .iter()
            .map(|(key, row)| rows::wait(&mut self.texts, lookups, key, row))
            .collect();
        let open = self.open.look(
            &mut self.source,
            &mut self.texts,
            &tables.living,
            (from_ns, to_ns),
        )?;
        self.open.take_out_shown(&mut waits);
        waits.extend(open);
        let (living, ended) = (&mut tables.living, &tables.ended);
        let threads = self.times.look(&mut self.texts, living, ended, to_ns);
        let lost = tables.lost;
        let lost_before = std::mem::replace(&mut self.lost, lost);
        self.looked_ns = to_ns;
        Ok(Look {
            from_ns,
            to_ns,
            waits,
            threads,
            cpu: self.cpu_held(&tables.cpus),
            lost_waits: lost.0.saturating_sub(lost_before.0),
            lost_ns: lost.1.saturating_sub(lost_before.1),
            lost_threads: tables.lost_threads,
            took: began.elapsed(),
        })
    }

    fn cpu_held(&mut self, cpus: &[(types::cpu_key, types::cpu_row)]) -> Vec<CpuHeld> {
        let mut sums: HashMap<(u32, u32), (u64, [i8; 16])> = HashMap::default();
        for (key, row) in cpus {
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
        held
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
