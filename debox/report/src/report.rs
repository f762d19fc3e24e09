//! What is computed from a history, as plain data. The terminal's tables, the page and `--json` are made from it
//! alone.

use debox_model::report::{Deadlock, Headline, Process, Samples, Spin, Totals};
use serde::Serialize;

use crate::comparison::Comparison;
pub use crate::event_loop::{EventLoop, LoopCause};
use crate::flame_graph::Flame;
pub use crate::group::{Cause, Group, Groups};
pub use crate::parts::Budget;

/// Name and version of the JSON form. Within a version, fields are only added.
pub const SCHEMA: &str = "debox.history-report/1";

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub recording: Recording,
    /// Where the time went, and what matters most. Null if no time was seen.
    pub headline: Option<Headline>,
    /// True: the headline covers all of the threads' time, as the recorder wrote it. False: it covers the time
    /// in calls (and off the CPU between them), as computed from the records.
    pub headline_is_of_run: bool,
    /// The headline in words, one line each.
    pub headline_text: Vec<String>,
    /// The headline without idle waits and waits for work. Null if nothing else was seen.
    pub active: Option<Headline>,
    /// Its words, one line each.
    pub active_text: Vec<String>,
    /// The event loop that was blocked for about as long as the largest cause or longer, in words.
    pub loop_text: Option<String>,
    /// All of the threads' time, in calls and between them, as the recorder wrote it. Null: the recording has no
    /// end, or there are several.
    pub account: Option<Totals>,
    /// Where threads computed, over the whole recording. Null: it was not sampled, has no end, or there are
    /// several.
    pub samples: Option<Samples>,
    /// Kernel locks that calls spun on, over the whole recording, the longest first. Null: it has no end, there are
    /// several, or an earlier version made it.
    pub spins: Option<Vec<Spin>>,
    pub spins_left_out: u64,
    pub spins_left_out_ns: u64,
    /// Threads that were found waiting for each other.
    pub deadlocks: Vec<Deadlock>,
    pub findings: Vec<Finding>,
    /// What is missing or uncertain, in sentences. Every form of the report shows them.
    pub caveats: Vec<String>,
    pub totals: Budget,
    /// Most expensive first.
    pub calls: Vec<Call>,
    /// The row `(user)`: time off the CPU between calls.
    pub between_calls: Option<Call>,
    pub timeline: Timeline,
    pub matrix: Matrix,
    pub waits: Vec<Wait>,
    pub waits_left_out: u64,
    /// Null: the recording does not have these columns.
    pub cpu_waits: Option<CpuWaits>,
    pub flame: Flame,
    pub trends: Vec<Trend>,
    /// Null: what the program measures was not recorded.
    pub user_level: Option<UserLevel>,
    pub slowest: Vec<SlowCall>,
    /// Calls that had not returned when the recording ended. The longest without idle waits come first.
    pub in_flight: Vec<SlowCall>,
    pub in_flight_left_out: u64,
    /// Threads that wait for the events of several clients. Those first that waited longest for other things.
    pub loops: Vec<EventLoop>,
    pub by_process: Groups,
    /// By unit or container.
    pub by_unit: Groups,
    pub threads: Vec<Thread>,
    pub threads_left_out: u64,
    pub against: Option<Comparison>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Recording {
    pub files: Vec<String>,
    pub hosts: Vec<String>,
    pub kernels: Vec<String>,
    pub commands: Vec<Vec<String>>,
    pub cpus: u32,
    pub filter: Option<String>,
    pub stacks_from_ns: u64,
    /// Nanoseconds since 1970.
    pub begin_ns: i64,
    pub span_ns: u64,
    pub rows: u64,
    pub calls: u64,
    pub threads: u64,
    pub complete: bool,
    /// The processes' command lines, as far as the recording has them.
    pub processes: Vec<Process>,
    /// Programs for which the recording had no room in `processes`: the last that began.
    pub processes_left_out: u64,
    /// Processes that should have been recorded and were not, in sentences.
    pub not_recorded: Vec<String>,
    pub lost: debox_history::Lost,
    pub filtered_out: u64,
    pub cut_off_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Call {
    pub name: String,
    pub count: u64,
    /// Not included in `count` and the quantiles. Their time until the end of the recording is in `budget`.
    pub in_flight: u64,
    pub budget: Budget,
    /// Part of the blocked time in which threads waited for work, which is not in `idle_ns`.
    pub resting_ns: u64,
    /// Of the calls that have returned, as are the next three.
    pub total_ns: u64,
    pub min_ns: u64,
    pub mean_ns: u64,
    /// The standard deviation.
    pub deviation_ns: u64,
    pub median_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub spin_ns: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Calls that slept.
    pub slept: u64,
    pub sleeps_left_out: u64,
    pub restarted: u64,
    pub partial: u64,
    pub errors: Vec<(String, u64)>,
    /// Wall time, and the part of the calls that took no longer.
    pub cdf: Vec<(u64, f64)>,
}

/// What the program measured around its calls, and what the kernel measured for the same calls.
#[derive(Debug, Clone, Serialize)]
pub struct UserLevel {
    /// Calls that both have measured.
    pub count: u64,
    /// Other calls that returned: only the kernel's times are known.
    pub not_measured: u64,
    /// In the same order as `Report::calls`.
    pub calls: Vec<UserLevelCall>,
    pub calls_left_out: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct UserLevelCall {
    pub call: String,
    pub count: u64,
    pub not_measured: u64,
    /// From the program's time stamp before the call to the one after it.
    pub user: Distribution,
    /// From the kernel's entry to its exit.
    pub kernel: Distribution,
    /// The difference of the two, for each call.
    pub outside: Distribution,
    /// The budget in the kernel.
    pub budget: Budget,
    /// Part of the time outside that the thread was off the CPU, at most.
    pub away_ns: u64,
    /// Part of the time outside in other calls, such as those of signal handlers.
    pub calls_ns: u64,
    /// Some of the calls, including those with most time outside: nanoseconds since the recording began, time in
    /// the program, time in the kernel.
    pub points: Vec<(u64, u64, u64)>,
    /// The calls with most time outside, longest first.
    pub largest: Vec<UserLevelPoint>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    pub min_ns: u64,
    pub mean_ns: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub total_ns: u64,
    /// A time, and the part of the calls that took no longer.
    pub cdf: Vec<(u64, f64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct UserLevelPoint {
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    pub tid: u32,
    pub comm: String,
    pub user_ns: u64,
    pub kernel_ns: u64,
    pub away_ns: u64,
    pub calls_ns: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Timeline {
    /// Nanoseconds since 1970.
    pub begin_ns: i64,
    pub bin_ns: u64,
    /// Parts of all calls and of the time between calls.
    pub parts: Vec<TimelinePart>,
    /// The most expensive calls, the time between calls, and all other calls. Together they are `parts`.
    pub by_call: Vec<TimelineCall>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TimelineCall {
    pub call: String,
    /// Parts in the same bins.
    pub parts: Vec<TimelinePart>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TimelinePart {
    pub name: &'static str,
    /// Time of all threads together, in each bin.
    pub ns: Vec<u64>,
}

/// Labels as columns, calls as rows, as in the DeBox paper's summary of a server's waits.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Matrix {
    pub labels: Vec<MatrixLabel>,
    /// Longest blocked first.
    pub calls: Vec<String>,
    /// One row per call, one cell per label.
    pub cells: Vec<Vec<Cell>>,
    pub labels_left_out: usize,
    pub calls_left_out: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct MatrixLabel {
    pub label: String,
    pub class: String,
    pub sleeps: u64,
    pub blocked_ns: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cell {
    pub sleeps: u64,
    /// Invocations that slept there.
    pub calls: u64,
    pub blocked_ns: u64,
}

/// All waits of the same threads, in the same call from the same place, for the same resource.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    pub comm: String,
    /// Whether it is the first thread of its process.
    pub is_main: bool,
    /// The thread of the longest wait.
    pub tid: u32,
    pub many_threads: bool,
    pub call: String,
    pub label: String,
    pub class: String,
    pub resource: Option<String>,
    /// If not 0: this row combines that many resources or owners, each with a small part.
    pub resources: u64,
    pub caller: Option<String>,
    pub count: u64,
    /// Waits that had not ended when the recording did.
    pub in_flight: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    /// Nanoseconds since the recording began: when the first of them began and the last ended.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Whether the findings leave it out: threads wait there for work, or may do so.
    pub is_rest: bool,
    /// Whether the functions of the program that led there get a lock. Other waits may be for a lock, too.
    pub is_lock: bool,
    /// Whether these functions say that the thread worked on a request.
    pub is_at_work: bool,
    pub owner_certainty: Option<String>,
    pub owner_comm: Option<String>,
    pub owner_tid: Option<u32>,
    pub many_owners: bool,
    pub owner_doing: Option<String>,
    /// What ended the longest wait.
    pub waker: String,
    /// Which tasks held these waits up, longest first, three at most. A waker that had waited in the same line until
    /// then counts only from the end of its own wait on; what came before counts for its waker. Of the longest waits of
    /// the recording that a task ended; what is not here is not known.
    pub held_up_by: Vec<HeldUpBy>,
}

/// A task that waits were for, by who woke whom.
#[derive(Debug, Clone, Serialize)]
pub struct HeldUpBy {
    pub comm: String,
    pub tid: u32,
    /// Its part of the time of these waits.
    pub ns: u64,
    /// Waits of which it had the largest part.
    pub waits: u64,
}

/// Who had the CPU while threads waited for one, in calls and between them.
#[derive(Debug, Clone, Serialize)]
pub struct CpuWaits {
    /// The whole time; the sum of the parts below.
    pub waited_ns: u64,
    /// Time in which the CPU quota of a control group was used up.
    pub throttled_ns: u64,
    /// Calls that were throttled.
    pub throttled_calls: u64,
    /// The longest throttled time of one call.
    pub throttled_longest_ns: u64,
    /// The control group, if the recording names exactly one.
    pub group: Option<String>,
    /// Longest first. Only the largest owner of each call is known.
    pub owners: Vec<CpuOwner>,
    /// Time of the other owners in the same calls.
    pub others_ns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct CpuOwner {
    /// `task`, `own`, `kernel`, `idle`, `hidden`, `stolen`, `many`, or `unknown`.
    pub kind: String,
    /// Null: the owner is no process.
    pub comm: Option<String>,
    pub pid: Option<u32>,
    /// Calls of which it was the largest owner.
    pub calls: u64,
    pub ns: u64,
    /// The longest time in one call.
    pub longest_ns: u64,
}

/// A call's cost as its invocations go on.
#[derive(Debug, Clone, Serialize)]
pub struct Trend {
    pub call: String,
    pub count: u64,
    pub cpu: TrendOf,
    pub wall: TrendOf,
    /// Some invocations: number, wall time, CPU time.
    pub points: Vec<(u64, u64, u64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TrendOf {
    pub grows: bool,
    /// Spearman's rank correlation of the bins' medians with their order. Null: too few calls.
    pub rho: Option<f64>,
    /// For each bin: first and last invocation, 10th percentile, median, 90th percentile.
    pub bins: Vec<(u64, u64, u64, u64, u64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SlowCall {
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub call: String,
    /// The call had not returned when the recording ended; its times are those until then.
    pub in_flight: bool,
    /// Null: the call has not returned.
    pub ret: Option<i64>,
    pub budget: Budget,
    pub caller: Option<String>,
    /// Outermost first.
    pub stack: Vec<String>,
    pub partial: bool,
    /// Longest first.
    pub sleeps: Vec<SlowSleep>,
    pub sleeps_left_out: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct SlowSleep {
    pub begin_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub label: String,
    pub class: String,
    pub site: String,
    pub resource: Option<String>,
    pub waker: String,
    pub owner: Option<String>,
    /// The sleep had not ended when the recording did.
    pub in_flight: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub calls: u64,
    pub budget: Budget,
    /// Part of the blocked time in which it waited for work, which is not in `idle_ns`.
    pub resting_ns: u64,
    /// CPU time between its calls. Null: unknown.
    pub user_cpu_ns: Option<u64>,
    /// True if `rest` is `at_rest`.
    pub at_rest: bool,
    /// The kind of waits that took nearly all of its time in calls. Null: it did other things.
    pub rest: Option<Rest>,
}

/// What a thread did in its calls nearly all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// It waited on futexes that no thread held, as if for work, and was woken.
    AtRest,
    /// It waited for what another thread held, and had not got it by the end.
    Stuck,
    /// It waited as a thread at rest does, but was not woken: it may be stuck.
    CannotTell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    Deadlock,
    InFlight,
    Wait,
    /// An event loop waited for something else than its events.
    Loop,
    Growth,
    Cpu,
    RunQueue,
    Errors,
    Spin,
    BetweenCalls,
    UserLevel,
    Idle,
    Nothing,
}

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    pub text: String,
    /// The section of the page that shows it, and the row there.
    pub evidence: String,
    /// The time that it is about. Findings are sorted by it, with exceptions: deadlocks come first, what may only be a
    /// wait for work and waits for recorded children come after the others, and findings about idle threads last.
    pub weight_ns: u64,
}
