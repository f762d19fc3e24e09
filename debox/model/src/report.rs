//! The report of a session: `debox.report/1`, as it is written to JSON.
//!
//! Every time is in integer nanoseconds. `None` (JSON `null`) means "not measured", never zero.
//! `debox/schema/report-1.json` is the checked-in JSON Schema of this structure.

mod deadlock;
mod headline;
pub mod hints;
mod samples;

use serde::{Deserialize, Serialize};

use crate::runtimes::Runtimes;

pub use deadlock::{Deadlock, DeadlockWait};
pub use headline::{
    is_server_call, Account, CallPart, CallTime, Headline, InCall, Share, ShortLived,
};
pub use samples::{interval, SampledFunction, SampledPlace, SampledStack, Samples};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "debox.report/1";

/// Everything one session found out.
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
    /// How the command ended: its exit status, or 128+n for signal n; null when it still runs.
    pub exit_status: Option<i32>,
    /// Where the time went, and what of it matters most; null if no time was seen.
    #[serde(default)]
    pub headline: Option<Headline>,
    /// A process among these has a socket that listens.
    #[serde(skip)]
    pub has_listener: bool,
    /// Threads that wait for each other; empty unless detail `sleeps`.
    #[serde(default)]
    pub deadlocks: Vec<Deadlock>,
    pub totals: Totals,
    /// Time the hypervisor took from all CPUs during the session (`steal` of `/proc/stat`).
    pub steal_ns: Option<u64>,
    /// Time that threads waited for a CPU by the scheduler's own account, and that no switch showed. It
    /// is inside `cpu_ns`.
    pub unseen_wait_ns: u64,
    /// Shorter calls are not in `call_sites`; `None`: all are, or call sites were not asked for.
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
    /// For which locks of the kernel calls spun, the longest first; empty unless detail `sleeps` under the kernel
    /// tap.
    #[serde(default)]
    pub spins: Vec<Spin>,
    pub call_sites: Vec<CallSite>,
    /// Where threads computed; null unless detail `samples`.
    #[serde(default)]
    pub samples: Option<Samples>,
    pub threads: Vec<Thread>,
    /// What the processes are called on their command lines, an entry for each program that one ran.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Processes that the command has started and that live on after its end; they are not monitored any more.
    #[serde(default)]
    pub live_on: Vec<u32>,
    pub in_flight: Vec<InFlight>,
    pub untapped: Vec<Untapped>,
    /// What the user tap left without stamps; null under the kernel tap.
    #[serde(default)]
    pub unstamped: Option<Unstamped>,
    /// What calls did inside the kernel; null unless `--trace` asked for it.
    #[serde(default)]
    pub trace: Option<Trace>,
    /// What triggers fired for; empty unless `--trigger` asked for it.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// Sentences on what would give names to the code that the headline and the longest sleeps come from.
    #[serde(default)]
    pub hints: Vec<String>,
    /// Sentences about what could not be seen, for people.
    pub unseen: Vec<String>,
    /// Why a part of the run is missing, in the sentence that is among `unseen`, too: the broker ended, or
    /// did not answer. Null where there is all of it.
    #[serde(default)]
    pub incomplete: Option<String>,
}

impl Report {
    /// The report with hints on names that are missing where it speaks of code.
    pub fn with_hints(
        mut self,
        sources: &hints::Sources<impl Fn(&str) -> Option<String>>,
    ) -> Report {
        /// What a reader sees first.
        const SLEEPS: usize = 3;
        let shares = self.headline.iter().flat_map(|headline| &headline.shares);
        let shares = shares
            .take(SLEEPS)
            .filter_map(|share| share.caller.as_deref());
        let sites = self.sleeps.iter().take(SLEEPS).filter_map(|sleep| {
            let longest = sleep.call_sites.iter().max_by_key(|site| site.blocked_ns);
            longest?.caller.as_deref()
        });
        self.hints = hints::of_callers(shares.chain(sites), sources);
        self
    }
}

/// A lock of the kernel for which calls spun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spin {
    pub syscall: String,
    /// `mutex`, `rwsem`, or `lock` of a spinlock or rwlock; the name as far as it is known.
    pub lock: Resource,
    /// The kernel function that took it.
    pub site: String,
    pub count: u64,
    /// Inside of the calls' `spin_ns`.
    pub spin_ns: u64,
    pub max_ns: u64,
}

/// A predicate over the record of a call, and the calls for which it held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    pub predicate: String,
    /// What the thread was sent; null: nothing.
    pub signal: Option<String>,
    /// Null: any number.
    pub limit_per_second: Option<u64>,
    /// Calls for which it fired, late ones included.
    pub fired: u64,
    /// Of these, calls that were decided after the program had gone on.
    pub late: u64,
    /// Calls for which it held and the limit kept it from firing.
    pub suppressed: u64,
    /// Calls of which it could not be told whether it held.
    pub undecided: u64,
    /// Signals that could not be sent.
    pub signals_failed: u64,
    /// Calls for which it fired and that are not in `calls`.
    pub unlisted: u64,
    /// In the order in which they were taken in.
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
    /// As the kernel has it: -errno on error.
    pub ret: i64,
    /// The first three argument words.
    pub args: Vec<u64>,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// Of the two before: a control group's CPU quota was used up. Null unless detail `cpu`.
    pub throttled_ns: Option<u64>,
    /// The process that had the CPU for most of the rest, if it was one and is known.
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
    /// Of the longest sleep; null if it did not sleep.
    pub label: Option<String>,
    pub class: Option<String>,
    /// Kernel stack of the longest sleep.
    pub kernel_frames: Vec<String>,
    /// The innermost frame of `frames` that is the program's own.
    pub caller: Option<String>,
    /// User stack of the call.
    pub frames: Vec<String>,
    /// Decided after the program had gone on.
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
    /// Null unless detail `irq` was asked for; the time is then inside the CPU times.
    pub irq_ns: Option<u64>,
    /// Null under the kernel tap, whose stamps enclose nothing but the call.
    pub outside_ns: Option<u64>,
    /// What the hypervisor took while the threads were on a CPU, up to the last time they left it. It is
    /// inside the CPU times (and `irq_ns`). Null where there is no hypervisor, or the kernel does not tell
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
    /// Kernel or user stacks that could not be taken.
    pub stacks: u64,
    /// Threads that were not monitored, or whose totals did not arrive.
    pub threads: u64,
    /// Table rows that did not fit (wakers, call sites).
    pub rows: u64,
    /// Times a probe was skipped by the kernel (recursion).
    pub probe_misses: u64,
    /// Under the user tap: rows and sums that programs keep of their own calls, and that cannot be true
    /// (parts longer than the time since the start, more errors than calls). None of what they say is in
    /// this report.
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
    /// Null under the user tap, which sees the faults of calls but not how they end.
    pub faults_major: Option<u64>,
    /// Wall time of one call: upper edge of the histogram bucket, at most 12.5 % too high.
    /// Null for `(user)`.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    /// CPU time spent spinning on contended locks, where the kernel's events show it (inside
    /// `cpu_ns`); null when not measured.
    pub spin_ns: Option<u64>,
    /// Bytes the call fetched from or sent to storage; null unless detail `io`.
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
}

/// One kernel site where one system call slept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sleep {
    pub syscall: String,
    pub label: String,
    /// `idle`, `disk`, `lock`, `memory`, `cpu`, `network`, `process` or `other`.
    pub class: String,
    /// `function+0xOFF`, with file and line where the kernel has debug information.
    pub site: String,
    pub count: u64,
    pub blocked_ns: u64,
    pub max_ns: u64,
    /// The kernel stack, innermost first.
    pub frames: Vec<String>,
    pub wakers: Vec<Waker>,
    /// Most waiters when a sleep began, the sleeper included; null when not counted.
    pub waiters_entry_max: Option<u64>,
    /// Most waiters left when a sleep ended, the sleeper not included.
    pub waiters_exit_max: Option<u64>,
    /// `all` (contended kernel locks: over all tasks) or `monitored`; null when not counted.
    pub waiters_scope: Option<String>,
    /// What it waited on: of several, the one that cost most. Null when neither the call's
    /// arguments nor the kernel tell.
    #[serde(default)]
    pub resource: Option<Resource>,
    /// All of them, what cost most first.
    #[serde(default)]
    pub resources: Vec<ResourceShare>,
    /// Who held it when the sleeps began; empty where nobody can (pipes, disks, timers).
    #[serde(default)]
    pub owners: Vec<Owner>,
    pub call_sites: Vec<SleepCallSite>,
}

/// What a process is called on its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// The process that started it; null if that is not known.
    #[serde(default)]
    pub parent: Option<u32>,
    /// When the program began, or the process was first seen (`CLOCK_MONOTONIC`).
    #[serde(default)]
    pub from_ns: u64,
    /// The words with which the program was started; `…` as the last one stands for more.
    pub command: Vec<String>,
    /// What the program has written over them (setproctitle); null if nothing.
    #[serde(default)]
    pub title: Option<String>,
}

impl Process {
    /// As `ps` shows it.
    pub fn name(&self) -> String {
        match &self.title {
            Some(title) => title.clone(),
            None => self.command.join(" "),
        }
    }
}

/// What a sleep waited on.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// `file`, `directory`, `pipe`, `socket`, `epoll`, `futex`, `mutex`, `rwsem`, `timer` ...
    pub kind: String,
    /// Null when it is not known.
    pub name: Option<String>,
}

impl Sleep {
    /// Where a runtime's threads wait for work, and for nothing else.
    pub fn parked_ns(&self) -> u64 {
        let is_parked = |site: &&SleepCallSite| {
            let frames: Vec<&str> = site.frames.iter().map(String::as_str).collect();
            Runtimes::builtin().are_parking(&frames)
        };
        let parked = self.call_sites.iter().filter(is_parked);
        parked.fold(0, |sum, site| sum.saturating_add(site.blocked_ns))
    }
}

/// One of the things that sleeps waited on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceShare {
    #[serde(flatten)]
    pub resource: Resource,
    pub count: u64,
    pub blocked_ns: u64,
}

/// Who held what sleeps waited on, when they began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    /// `exact`, `last reader` (of a lock held by readers), `last holder` (of a semaphore: took it
    /// last, and has not given it back itself), or `none`: no owner is known.
    pub certainty: String,
    pub comm: Option<String>,
    /// For file locks the process that took the lock.
    pub tid: Option<u32>,
    /// Sleeps that it held up.
    pub count: u64,
    pub blocked_ns: u64,
    /// `on CPU`, `waiting for a CPU`, or the label of its own sleep; null when not known.
    pub doing: Option<String>,
}

/// Who had the CPU while threads waited for one, or what kept them from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuWait {
    /// The call in which they waited; `(user)`: between calls.
    pub syscall: String,
    /// `runqueue`: after they were woken; `preempted`: they were pushed off.
    pub part: String,
    /// `task`; `kernel`: a thread of the kernel's; `quota`: their control group had none left; `idle`: the CPU
    /// had nothing to do; `hidden`: a task of another user's; `many`: processes without
    /// rows of their own, there are too many; `unknown`; `untold`: the wait had not ended, or
    /// no switch showed it.
    pub kind: String,
    /// Of the process that had the CPU; null for others than `task` and `kernel`.
    pub comm: Option<String>,
    pub pid: Option<u32>,
    /// The process is one that is monitored.
    pub is_own: bool,
    /// It ran under a real-time or deadline policy.
    pub is_real_time: bool,
    /// Quota: last component of the control group's path.
    pub group: Option<String>,
    /// Quota: CPU time in each period.
    pub quota_ns: Option<u64>,
    pub period_ns: Option<u64>,
    /// Turns on the CPU during such waits; quota: waits.
    pub turns: u64,
    pub ns: u64,
    /// The longest turn.
    pub max_ns: u64,
    /// CPUs on which the waiting threads may run, the fewest seen; null if `untold`.
    pub cpus_allowed: Option<u32>,
}

/// A waited for B, which waited for C: each link waited for the next one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Waits of the first link that went like this.
    pub count: u64,
    /// Why there is no further link: `complete`, `cycle` (it is in the chain already), `length`.
    pub end: String,
    pub links: Vec<ChainLink>,
}

/// A task in a chain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainLink {
    pub comm: String,
    /// Null when there were several of that name.
    pub tid: Option<u32>,
    /// How long the first link waited; how long a later one was itself asleep during the wait of
    /// the link before it. Null when it was not monitored.
    pub waited_ns: Option<u64>,
    /// Of that, what `label` explains: a link may sleep at several places.
    pub label_ns: Option<u64>,
    /// Where it slept longest; null when it did not sleep.
    pub label: Option<String>,
    pub class: Option<String>,
    pub syscall: Option<String>,
    /// What it did when the wait of the link before it began; null for the first link.
    pub doing: Option<String>,
    /// How sure it is that it waited for the next link; null for the last one.
    pub certainty: Option<String>,
}

/// Who ended sleeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waker {
    /// `task`, `hardirq`, `softirq` or `unknown`.
    pub kind: String,
    /// Null unless `kind` is `task`: an interrupted bystander is not a waker.
    pub comm: Option<String>,
    pub tid: Option<u32>,
    pub count: u64,
}

/// Where in the program a sleeping call was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SleepCallSite {
    /// User stack, innermost first.
    pub frames: Vec<String>,
    /// The innermost frame that is the program's own: not of the C library nor a language's runtime.
    pub caller: Option<String>,
    pub count: u64,
    pub blocked_ns: u64,
}

/// Where in the program calls were made (detail `callsites`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallSite {
    pub syscall: String,
    pub frames: Vec<String>,
    /// The innermost frame that is the program's own: not of the C library nor a language's runtime.
    pub caller: Option<String>,
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
    /// What it waits on now; `running` or `waiting for a CPU` when it does not sleep.
    pub label: String,
    pub class: String,
    /// Null when it is not known, or it does not sleep.
    #[serde(default)]
    pub resource: Option<Resource>,
    /// Null unless the resource is of a kind that somebody can hold.
    #[serde(default)]
    pub owner: Option<Holder>,
    /// The kernel stack, innermost first.
    pub frames: Vec<String>,
}

/// Who held what a call waits for when the wait began, or when monitoring began if that was later. Of a
/// lock whose words in the program's memory name the holder: when the report was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// As in [`Owner`].
    pub certainty: String,
    pub comm: Option<String>,
    pub tid: Option<u32>,
    /// `on CPU`, `waiting for a CPU`, or the label of its own sleep; null when not known.
    pub doing: Option<String>,
}

/// What has no stamps under the user tap, and so is in no row of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unstamped {
    /// Calls through libc's functions: of vfork children before their exec, and of signal handlers
    /// inside too many others. Their time is in `(user)`.
    pub calls: u64,
    /// Threads of programs executed under a seccomp filter of their own, which might not survive
    /// asking for their session.
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

/// The call tree inside the kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `kprobe.session`, `kprobe.multi`, `fentry`, or `sampled`: no functions, but where the clock
    /// found calls, and the tracepoints that they passed.
    pub method: String,
    /// Methods that would have told more, and why they do not work here.
    pub instead_of: Vec<TraceLack>,
    pub functions_attached: u64,
    /// Functions nested deeper were not followed; null when sampled.
    pub depth_max: Option<u32>,
    /// CPU time between two samples; null unless sampled.
    pub period_ns: Option<u64>,
    /// Functions that were asked for and not probed.
    pub denied: Vec<TraceDenied>,
    pub lost: TraceLost,
    /// Functions entered (or samples taken) in an interrupt on top of a call: they are not the
    /// call's and not in the tree.
    pub in_interrupts: u64,
    /// By system call, the longest (or most often sampled) first.
    pub tree: Vec<TraceCall>,
}

/// A trace method that does not work here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceLack {
    pub method: String,
    pub why: String,
}

/// Functions that were not probed for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceDenied {
    pub why: String,
    pub count: u64,
    /// The first of them.
    pub functions: Vec<String>,
}

/// What of the call tree was seen but not kept. All zero in a complete tree.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceLost {
    /// Functions entered deeper than `depth_max`.
    pub depth: u64,
    /// Functions entered that the table had no place for.
    pub nodes: u64,
    /// Functions entered by more threads at the same time than are followed.
    pub threads: u64,
    /// Entries without a return, other than of calls that were still running.
    pub unreturned: u64,
    /// Returns without an entry, such as of functions entered before the session.
    pub unmatched: u64,
    /// Times the kernel skipped a probe.
    pub missed: u64,
    /// Entries that did not fit a thread's records; the tree has them.
    pub entries: u64,
    /// Samples without a stack.
    pub stacks: u64,
    /// Tracepoints passed that the table had no place for.
    pub events: u64,
}

/// The inside of one system call, all calls of that name added up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceCall {
    pub syscall: String,
    /// Time in the functions below; null when sampled.
    pub total_ns: Option<u64>,
    /// Null unless sampled.
    pub samples: Option<u64>,
    /// In the order of their first entry; when sampled, the most often found first.
    pub functions: Vec<TraceFunction>,
    /// Tracepoints passed; only when sampled.
    pub events: Vec<TraceEvent>,
}

/// A function as reached on one way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceFunction {
    pub function: String,
    /// Null when sampled, as are all times.
    pub entered: Option<u64>,
    /// Returns that were seen; `total_ns` and what follows are theirs.
    pub returned: Option<u64>,
    pub total_ns: Option<u64>,
    /// Without the functions below.
    pub self_ns: Option<u64>,
    /// Asleep, inside of `total_ns`.
    pub blocked_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// How often the clock found the call in it or below; null unless sampled.
    pub samples: Option<u64>,
    pub children: Vec<TraceFunction>,
}

/// A tracepoint that calls passed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub event: String,
    pub count: u64,
}
