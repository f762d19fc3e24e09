//! What is computed from a history, as plain data: the terminal's tables, the page and `--json` are
//! made from this and from nothing else.

use debox_model::report::{Deadlock, Headline, Process, Samples, Totals};
use serde::Serialize;

use crate::compare::Comparison;
use crate::flame::Flame;

/// Name and version of the JSON form. Within it fields are only added.
pub const SCHEMA: &str = "debox.history-report/1";

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub recording: Recording,
    /// Where the time went, and what of it matters most. Null if no time was seen.
    pub headline: Option<Headline>,
    /// Whether that is of all the threads' time, as the recorder wrote it down, or of the time in calls (and
    /// off the CPU between them), as the records tell it.
    pub headline_is_of_run: bool,
    /// The same in words, a line each.
    pub headline_text: Vec<String>,
    /// All threads' time, in calls and between them, as the recorder wrote it down. Null: the recording has
    /// no end, or there are several.
    pub account: Option<Totals>,
    /// Where threads computed, of all the recording. Null: it was not sampled, has no end, or there are several.
    pub samples: Option<Samples>,
    /// Threads that were found to wait for each other.
    pub deadlocks: Vec<Deadlock>,
    pub findings: Vec<Finding>,
    /// What is missing or uncertain, in sentences; shown with every form of the report.
    pub caveats: Vec<String>,
    pub totals: Budget,
    /// Most expensive first.
    pub calls: Vec<Call>,
    /// The row `(user)`: time between calls off the CPU.
    pub between_calls: Option<Call>,
    pub timeline: Timeline,
    pub matrix: Matrix,
    pub waits: Vec<Wait>,
    pub waits_left_out: u64,
    /// Null: the recording has no such columns.
    pub cpu_waits: Option<CpuWaits>,
    pub flame: Flame,
    pub trends: Vec<Trend>,
    /// Null: the recording was not asked for what the program measures.
    pub user_level: Option<UserLevel>,
    pub slowest: Vec<SlowCall>,
    /// Calls that had not returned when the recording ended, longest without idle waits first.
    pub in_flight: Vec<SlowCall>,
    pub in_flight_left_out: u64,
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
    /// What each process is called on its command line, as far as the recording has it.
    pub processes: Vec<Process>,
    pub lost: debox_history::Lost,
    pub filtered_out: u64,
    pub cut_off_bytes: u64,
}

/// The parts add up to the wall time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Budget {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// Null: not measured, and inside `cpu_ns`.
    pub irq_ns: Option<u64>,
    /// Of the blocked time.
    pub idle_ns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Call {
    pub name: String,
    pub count: u64,
    /// Not in the count, and in no quantile; what they took until the end is in the budget.
    pub in_flight: u64,
    pub budget: Budget,
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

/// What the program measured around its calls, and what the kernel saw of the same calls.
#[derive(Debug, Clone, Serialize)]
pub struct UserLevel {
    /// Calls that were measured in both.
    pub count: u64,
    /// Others that returned: of these there are the kernel's times only.
    pub not_measured: u64,
    /// In the order of all calls.
    pub calls: Vec<UserLevelCall>,
    pub calls_left_out: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct UserLevelCall {
    pub call: String,
    pub count: u64,
    pub not_measured: u64,
    /// From the program's stamp before the call to the one after it.
    pub user: Distribution,
    /// From the kernel's entry to its exit.
    pub kernel: Distribution,
    /// Of each call, the one less the other.
    pub outside: Distribution,
    /// In the kernel.
    pub budget: Budget,
    /// Of what is outside: off the CPU, at most.
    pub away_ns: u64,
    /// Of what is outside: in other calls, such as those of signal handlers.
    pub calls_ns: u64,
    /// Some of the calls, and those of which most is outside: nanoseconds since the recording began, in
    /// the program, in the kernel.
    pub points: Vec<(u64, u64, u64)>,
    /// Most outside first.
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
    /// Time, and the part of the calls that took no longer.
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
    /// Of all calls and the time between calls.
    pub parts: Vec<TimelinePart>,
    /// The calls that cost most, what was between calls, and all others: together they are `parts`.
    pub by_call: Vec<TimelineCall>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TimelineCall {
    pub call: String,
    /// In the same bins.
    pub parts: Vec<TimelinePart>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TimelinePart {
    pub name: &'static str,
    /// Of all threads together, in each bin.
    pub ns: Vec<u64>,
}

/// Labels across, calls down, as in the DeBox paper's summary of a server's waits.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Matrix {
    pub labels: Vec<MatrixLabel>,
    /// Longest blocked first.
    pub calls: Vec<String>,
    /// One row for each call, one cell for each label.
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

/// All waits of the same threads, in the same call from the same place, for the same thing.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    pub comm: String,
    /// The first thread of its process.
    pub is_main: bool,
    /// Of the longest.
    pub tid: u32,
    pub many_threads: bool,
    pub call: String,
    pub label: String,
    pub class: String,
    pub resource: Option<String>,
    /// Not 0: so many resources or owners, each of little weight, are in this row.
    pub resources: u64,
    pub caller: Option<String>,
    pub count: u64,
    /// Of these, waits that had not ended when the recording did.
    pub in_flight: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    pub owner_certainty: Option<String>,
    pub owner_comm: Option<String>,
    pub owner_tid: Option<u32>,
    pub many_owners: bool,
    pub owner_doing: Option<String>,
    /// Of the longest.
    pub waker: String,
}

/// Who had the CPU while threads waited for one, in calls and between them.
#[derive(Debug, Clone, Serialize)]
pub struct CpuWaits {
    /// All of it; the sum of what follows.
    pub waited_ns: u64,
    /// While the CPU quota of a control group was used up.
    pub throttled_ns: u64,
    /// Calls of which that is a part.
    pub throttled_calls: u64,
    /// Of one call.
    pub throttled_longest_ns: u64,
    /// The control group, if the recording tells it and there was one only.
    pub group: Option<String>,
    /// Longest first. Of each call the largest owner is known.
    pub owners: Vec<CpuOwner>,
    /// Had by the other owners of the same calls.
    pub others_ns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct CpuOwner {
    /// `task`, `own`, `kernel`, `idle`, `hidden`, `stolen`, `many`, or `unknown`.
    pub kind: String,
    /// Null: no process.
    pub comm: Option<String>,
    pub pid: Option<u32>,
    /// Calls of which it was the largest owner.
    pub calls: u64,
    pub ns: u64,
    /// Of one call.
    pub longest_ns: u64,
}

/// A call's cost against its invocations.
#[derive(Debug, Clone, Serialize)]
pub struct Trend {
    pub call: String,
    pub count: u64,
    pub cpu: TrendOf,
    pub wall: TrendOf,
    /// Some invocations: which, wall time, CPU time.
    pub points: Vec<(u64, u64, u64)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TrendOf {
    pub grows: bool,
    /// Spearman's rank correlation of the bins' medians with their order; null: too few calls.
    pub rho: Option<f64>,
    /// First and last invocation of a bin, 10 %, median, 90 %.
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
    /// It had not returned when the recording ended: all is what it came to by then.
    pub in_flight: bool,
    /// Null: it has not returned.
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
    /// It had not ended when the recording did.
    pub in_flight: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub calls: u64,
    pub budget: Budget,
    /// Computing between its calls. Null: not known.
    pub user_cpu_ns: Option<u64>,
    /// `rest` is `at_rest`.
    pub at_rest: bool,
    /// What kind of waits it did nearly nothing but; null: it did other things.
    pub rest: Option<Rest>,
}

/// What a thread did in its calls, nearly all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// It waited on futexes that no thread held, as for work, and was woken.
    AtRest,
    /// It waited for what another thread held, and had not got it at the end.
    Stuck,
    /// It waited like a thread at rest, but was not woken: it may be stuck.
    CannotTell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    Deadlock,
    InFlight,
    Wait,
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
    /// Which section of the page shows it, and which row there.
    pub evidence: String,
    /// What it is about, in time; findings are in its order, but for deadlocks, which come first, and
    /// those of idle threads, which come last.
    pub weight_ns: u64,
}
