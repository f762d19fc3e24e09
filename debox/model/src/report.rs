//! The report of a session: `debox.report/1`, as it is written to JSON.
//!
//! Every time is in integer nanoseconds. `None` (JSON `null`) means "not measured", never zero.
//! `debox/schema/report-1.json` is the checked-in JSON Schema of this structure.

mod deadlock;
mod headline;
pub mod headline_words;
pub mod hints;
mod kinds;
mod resource;
mod samples;
mod shares;
mod trace;
mod waits;

use serde::{Deserialize, Serialize};

use crate::frame::Frame;

pub use deadlock::{Deadlock, DeadlockWait};
pub use headline::{is_server_call, Account, CallTime, WAITS_FOR_CHILDREN};
pub use kinds::{Certainty, ChainEnd, CpuWaitKind, CpuWaitPart, WaitersScope, WakerKind};
pub use resource::Resource;
pub use samples::{interval, SampledFunction, SampledPlace, SampledStack, Samples};
pub use shares::{CallPart, Headline, InCall, Share, ShortLived};
pub use trace::{Trace, TraceCall, TraceDenied, TraceEvent, TraceFunction, TraceLack, TraceLost};
pub use waits::{
    Chain, ChainLink, CpuWait, Owner, ResourceShare, Sleep, SleepCallSite, Spin, Waker,
};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "debox.report/1";

/// The results of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The command as it was given; empty for `debox attach`.
    pub command: Vec<String>,
    /// `uname -r` of the kernel that was measured.
    pub kernel: String,
    /// `kernel` or `user`.
    pub tap: String,
    /// The parts of the engine that were loaded: `basic`, `sleeps`, `callsites`, `irq`, `io`, `cpu`,
    /// `samples`.
    pub detail: Vec<String>,
    /// From the start of monitoring to its end.
    pub duration_ns: u64,
    /// How the command ended: its exit status, or 128+n for signal n; null if it is still running.
    pub exit_status: Option<i32>,
    /// Where the time went and which part matters most; null if no time was measured.
    #[serde(default)]
    pub headline: Option<Headline>,
    /// Whether one of the processes has a listening socket.
    #[serde(skip)]
    pub has_listener: bool,
    /// Threads that wait for each other; empty unless detail `sleeps`.
    #[serde(default)]
    pub deadlocks: Vec<Deadlock>,
    pub totals: Totals,
    /// Time the hypervisor took from all CPUs during the session (`steal` of `/proc/stat`).
    pub steal_ns: Option<u64>,
    /// Time that threads waited for a CPU according to the scheduler's own account but that no context switch
    /// showed. It is included in `cpu_ns`.
    pub unseen_wait_ns: u64,
    /// Shorter calls are left out of `call_sites`. `None`: none are left out, or call sites were not requested.
    pub slow_ns: Option<u64>,
    pub lost: Lost,
    pub syscalls: Vec<Syscall>,
    pub sleeps: Vec<Sleep>,
    /// Who waited for whom, the longest waits first.
    #[serde(default)]
    pub chains: Vec<Chain>,
    /// Who had the CPU that threads waited for, the longest first; empty unless detail `cpu`.
    #[serde(default)]
    pub cpu_waits: Vec<CpuWait>,
    /// Kernel locks that calls spun on, the longest first; empty unless detail `sleeps` under the kernel tap.
    #[serde(default)]
    pub spins: Vec<Spin>,
    pub call_sites: Vec<CallSite>,
    /// Where threads computed; null unless detail `samples`.
    #[serde(default)]
    pub samples: Option<Samples>,
    pub threads: Vec<Thread>,
    /// The processes' names from their command lines, with an entry for each program that a process ran.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Processes that the command started and that outlived it; they are no longer monitored.
    #[serde(default)]
    pub live_on: Vec<u32>,
    pub in_flight: Vec<InFlight>,
    pub untapped: Vec<Untapped>,
    /// What the user tap could not stamp; null under the kernel tap.
    #[serde(default)]
    pub unstamped: Option<Unstamped>,
    /// What calls did inside the kernel; null unless `--trace` asked for it.
    #[serde(default)]
    pub trace: Option<Trace>,
    /// The triggers and the calls for which they fired; empty without `--trigger`.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// Hints, as sentences: what would provide function names for the code behind the headline and the longest
    /// sleeps.
    #[serde(default)]
    pub hints: Vec<String>,
    /// What could not be observed, as sentences for people.
    pub unseen: Vec<String>,
    /// Why a part of the run is missing: the broker ended or did not answer. The same sentence is in `unseen`.
    /// Null if the report covers the whole run.
    #[serde(default)]
    pub incomplete: Option<String>,
}

impl Report {
    /// Adds hints about missing function names in the report.
    pub fn with_hints(
        mut self,
        sources: &hints::Sources<impl Fn(&str) -> Option<String>>,
    ) -> Report {
        /// Sleeps that a reader sees first.
        const SLEEPS: usize = 3;
        let shares = self.headline.iter().flat_map(|headline| &headline.shares);
        let shares = shares
            .take(SLEEPS)
            .filter_map(|share| share.caller.as_ref());
        let sites = self.sleeps.iter().take(SLEEPS).filter_map(|sleep| {
            let longest = sleep.call_sites.iter().max_by_key(|site| site.blocked_ns);
            longest?.caller.as_ref()
        });
        self.hints = hints::of_callers(shares.chain(sites), sources);
        self
    }
}

/// A predicate over the record of a call, and the calls for which it held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    pub predicate: String,
    /// The signal that the thread was sent; null: none.
    pub signal: Option<String>,
    /// Null: no limit.
    pub limit_per_second: Option<u64>,
    /// Calls for which the trigger fired, late ones included.
    pub fired: u64,
    /// Of these, calls that were decided after the program had continued.
    pub late: u64,
    /// Calls for which the predicate held but the limit suppressed the trigger.
    pub suppressed: u64,
    /// Calls for which it could not be determined whether the predicate held.
    pub undecided: u64,
    /// Signals that could not be sent.
    pub signals_failed: u64,
    /// Calls for which the trigger fired but that are not in `calls`.
    pub unlisted: u64,
    /// In the order in which they were received.
    pub calls: Vec<TriggerCall>,
}

/// A call for which a trigger fired.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggerCall {
    /// The call's end, from the start of monitoring.
    pub at_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub syscall: String,
    /// The kernel's return value: -errno on error.
    pub ret: i64,
    /// The first three argument words.
    pub args: Vec<u64>,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// The part of the two times above in which a control group's CPU quota was used up. Null unless detail
    /// `cpu`.
    pub throttled_ns: Option<u64>,
    /// The process that had the CPU for most of the remaining wait; null if no process had it, or it is not
    /// known.
    pub cpu_owner: Option<String>,
    /// Null unless detail `irq`.
    pub irq_ns: Option<u64>,
    /// Null unless detail `sleeps`.
    pub spin_ns: Option<u64>,
    pub sleeps: u64,
    /// Its longest single sleep.
    pub longest_ns: u64,
    pub faults_minor: u64,
    pub faults_major: Option<u64>,
    /// Label of the longest sleep; null if the call did not sleep.
    pub label: Option<String>,
    pub class: Option<String>,
    /// Kernel stack of the longest sleep.
    pub kernel_frames: Vec<Frame>,
    /// The innermost frame of `frames` that is the program's own.
    pub caller: Option<Frame>,
    /// User stack of the call.
    pub frames: Vec<Frame>,
    /// The call was decided after the program had continued.
    pub late: bool,
    /// The signal could not be sent.
    pub signal_failed: bool,
}

/// A thread's (or all threads') life: calls and `(user)` together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Sum of the threads' wall times.
    pub wall_ns: u64,
    /// On CPU between calls.
    pub user_cpu_ns: u64,
    /// On CPU inside calls.
    pub kernel_cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// Null unless detail `irq` was requested; without it, this time is included in the CPU times.
    pub irq_ns: Option<u64>,
    /// Null under the kernel tap, whose stamps enclose nothing but the call.
    pub outside_ns: Option<u64>,
    /// Time that the hypervisor took while the threads were on a CPU, up to the last time they left it. It is
    /// included in the CPU times (and `irq_ns`). Null without a hypervisor, or if the kernel does not report it
    /// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    #[serde(default)]
    pub stolen_ns: Option<u64>,
}

/// What was seen but not kept. All zero in a complete report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Records that could not be written.
    pub records: u64,
    /// Sleeps whose site or row is missing; their time is in `syscalls`.
    pub sleeps: u64,
    /// Kernel or user stacks that could not be captured.
    pub stacks: u64,
    /// Threads that were not monitored, or whose totals did not arrive.
    pub threads: u64,
    /// Table rows that did not fit (wakers, call sites).
    pub rows: u64,
    /// Times a probe was skipped by the kernel (recursion).
    pub probe_misses: u64,
    /// Under the user tap: rows and sums that programs keep about their own calls and that cannot be true
    /// (parts longer than the time since the start, more errors than calls). They are not used in this report.
    #[serde(default)]
    pub refused: u64,
}

/// One row per system call; `(user)` is the time between calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Syscall {
    pub name: String,
    /// Calls that ended, each restarted piece included.
    pub calls: u64,
    /// Calls that returned an error to the program (restarted pieces are not errors).
    pub errors: u64,
    /// Pieces of restarted calls among `calls` (the kernel returned -512..-516).
    pub restarts: u64,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    pub irq_ns: Option<u64>,
    pub outside_ns: Option<u64>,
    pub faults_minor: u64,
    /// Null under the user tap, which sees the faults of calls but not whether they are major.
    pub faults_major: Option<u64>,
    /// Wall time of one call: upper edge of the histogram bucket, at most 12.5 % too high.
    /// Null for `(user)`.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    /// CPU time spent spinning on contended locks, where the kernel's events show it (included in `cpu_ns`);
    /// null when not measured.
    pub spin_ns: Option<u64>,
    /// Bytes the call fetched from or sent to storage; null unless detail `io`.
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
}

/// A process's name from its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// The process that started it; null if that is not known.
    #[serde(default)]
    pub parent: Option<u32>,
    /// When the program began, or the process was first seen (`CLOCK_MONOTONIC`).
    #[serde(default)]
    pub from_ns: u64,
    /// The words with which the program was started; a last word `…` means that more follow.
    pub command: Vec<String>,
    /// The title that the program wrote over its command line (setproctitle); null if none.
    #[serde(default)]
    pub title: Option<String>,
    /// The container or unit, or else the control group that it belonged to; null: none, or not known.
    #[serde(default)]
    pub place: Option<String>,
    /// Its number in its own PID namespace; null if that is `pid`, or if it is not known.
    #[serde(default)]
    pub inner_pid: Option<u32>,
}

impl Process {
    /// The name that `ps` shows.
    pub fn name(&self) -> String {
        match &self.title {
            Some(title) => title.clone(),
            None => self.command.join(" "),
        }
    }
}

/// Where in the program calls were made (detail `callsites`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallSite {
    pub syscall: String,
    pub frames: Vec<Frame>,
    /// The innermost frame of the program's own code, which is neither the C library's nor a language
    /// runtime's.
    pub caller: Option<Frame>,
    pub calls: u64,
    pub wall_ns: u64,
    pub blocked_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
}

/// One thread's life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Calls that this thread made.
    pub calls: u64,
    #[serde(flatten)]
    pub totals: Totals,
}

/// A call that had not returned when the report was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub syscall: String,
    /// Since the call began, or since monitoring began if the call is older (`at_least`).
    pub for_ns: u64,
    pub at_least: bool,
    /// What it waits on now; `running` or `waiting for a CPU` if it is not asleep.
    pub label: String,
    pub class: String,
    /// Null if it is not known, or the call is not asleep.
    #[serde(default)]
    pub resource: Option<Resource>,
    /// Null unless the resource is of a kind that can be held.
    #[serde(default)]
    pub owner: Option<Holder>,
    /// The kernel stack, innermost first.
    pub frames: Vec<Frame>,
}

/// The holder of what a call waits for, at the time the wait began, or when monitoring began if that was later.
/// For a lock whose words in the program's memory name the holder: at the time the report was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// As in [`Owner`].
    pub certainty: Certainty,
    pub comm: Option<String>,
    pub tid: Option<u32>,
    /// `on CPU`, `waiting for a CPU`, or the label of its own sleep; null when not known.
    pub doing: Option<String>,
}

/// What the user tap did not stamp, and what is therefore in no row of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unstamped {
    /// Calls through libc's functions that were made by vfork children before their exec, or by too deeply
    /// nested signal handlers. Their time is in `(user)`.
    pub calls: u64,
    /// Threads of programs executed under a seccomp filter of their own, which might kill them for asking for
    /// their session.
    pub filtered_threads: u64,
    /// Their names.
    pub filtered: Vec<String>,
}

/// A call that slept and that the user tap did not see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Untapped {
    pub syscall: String,
    pub label: String,
    pub count: u64,
    pub blocked_ns: u64,
    /// As in [`Sleep`].
    #[serde(default)]
    pub resources: Vec<ResourceShare>,
    #[serde(default)]
    pub owners: Vec<Owner>,
}
