//! What calls did inside the kernel.

use serde::{Deserialize, Serialize};

/// The call tree inside the kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `kprobe.session`, `kprobe.multi`, `fentry`, or `sampled`: no functions, only where the clock found calls
    /// and the tracepoints that they passed.
    pub method: String,
    /// Methods that would have shown more, and why they do not work here.
    pub instead_of: Vec<TraceLack>,
    pub functions_attached: u64,
    /// Functions nested deeper were not followed; null when sampled.
    pub depth_max: Option<u32>,
    /// CPU time between two samples; null unless sampled.
    pub period_ns: Option<u64>,
    /// Functions that were requested but not probed.
    pub denied: Vec<TraceDenied>,
    pub lost: TraceLost,
    /// Functions entered (or samples taken) in an interrupt on top of a call: they do not belong to the call
    /// and are not in the tree.
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

/// Parts of the call tree that were seen but not kept. All zero in a complete tree.
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

/// A function, as reached by one chain of callers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceFunction {
    pub function: String,
    /// Null when sampled, as are all times.
    pub entered: Option<u64>,
    /// Returns that were seen; `total_ns` and the fields after it cover only these.
    pub returned: Option<u64>,
    pub total_ns: Option<u64>,
    /// Without the functions below.
    pub self_ns: Option<u64>,
    /// Time asleep; included in `total_ns`.
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
