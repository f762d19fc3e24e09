// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session measures, and of whom.

pub(crate) mod check;

use crate::trace::TraceOptions;
use crate::trigger::Trigger;

/// How the start and the end of a call are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tap {
    /// The `sys_enter` and `sys_exit` tracepoints.
    Kernel,
    /// Stamps taken in user space.
    User,
}

/// The details that a session measures. `basic` (budgets and faults) is always included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Detail {
    /// Where calls sleep, who wakes them, who else waits.
    pub sleeps: bool,
    /// User stacks of every call.
    pub callsites: bool,
    /// Interrupts measured apart from CPU time.
    pub irq: bool,
    /// Bytes that calls fetched from or sent to storage.
    pub io: bool,
    /// Who had the CPU that threads waited for, or which quota kept them off it.
    pub cpu: bool,
    /// Where threads compute, by samples of their user stacks.
    pub samples: bool,
}

impl Detail {
    /// The names of the details, as in the report.
    pub fn names(&self) -> Vec<String> {
        let parts = [
            (true, "basic"),
            (self.sleeps, "sleeps"),
            (self.callsites, "callsites"),
            (self.irq, "irq"),
            (self.io, "io"),
            (self.cpu, "cpu"),
            (self.samples, "samples"),
        ];
        parts
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| name.to_string())
            .collect()
    }
}

/// A session's options.
#[derive(Debug, Clone)]
pub struct Options {
    pub tap: Tap,
    pub detail: Detail,
    /// With detail `callsites`: calls shorter than this are left out of the profile by call site.
    pub slow_ns: u64,
    /// The most threads monitored at the same time.
    pub max_threads: u32,
    /// The most threads that can read their records; 0: records are not written.
    pub max_records: u32,
    /// Whether there will be a report. Without one, the probes send no events, so none have to be received, and
    /// processes under the user tap find their slots themselves.
    pub report: bool,
    /// The call tree inside the kernel.
    pub trace: Option<TraceOptions>,
    /// Whether to find out what tasks that are asleep when they are enrolled wait for. A session starts faster
    /// without this.
    pub adopts_sleeps: bool,
    /// Whether children that a monitored process starts are left out.
    pub one_process: bool,
    /// How many bytes of records may be waiting for a [`crate::Recorder`], a power of two; 0: none are sent.
    pub history_bytes: u32,
    /// For a [`crate::live::Live`]: whether waits are summed by thread from one look to the next, instead of for a
    /// report at the end.
    pub live: bool,
    /// With a [`crate::Recorder`]: whether the shim's stamps around calls are kept, too. Its processes
    /// find the session by [`Session::tap_address`], and `max_records` threads have slots for it.
    pub user_stamps: bool,
    /// The triggers, evaluated at the end of each call.
    pub triggers: Vec<Trigger>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tap: Tap::Kernel,
            detail: Detail {
                sleeps: true,
                ..Detail::default()
            },
            slow_ns: 0,
            max_threads: 16384,
            max_records: 0,
            report: true,
            trace: None,
            adopts_sleeps: false,
            one_process: false,
            history_bytes: 0,
            live: false,
            user_stamps: false,
            triggers: Vec::new(),
        }
    }
}

impl Options {
    /// Whether the gate has to record who has the CPUs.
    pub(crate) fn asks_for_cpus(&self) -> bool {
        self.detail.cpu && (self.report || self.keeps_call_cpu())
    }

    /// Whether the owner of the CPU is kept for each call, not only summed for the report.
    pub(crate) fn keeps_call_cpu(&self) -> bool {
        let has_records = self.max_records > 0 && !self.user_stamps;
        let is_wanted = has_records || self.history_bytes > 0 || !self.triggers.is_empty();
        self.detail.cpu && self.tap == Tap::Kernel && is_wanted
    }
}

/// The users of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The process that opened it.
    Own,
    /// Up to so many of the broker's clients, each with slots in a map of its own.
    Shared { clients: u32 },
    /// A command of one of the broker's clients.
    Run,
}
