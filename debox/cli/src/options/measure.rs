//! Options of every command that begins a session: what it measures, and how it shows the result.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use debox::predicate::Predicate;
use debox::trace::Method;
use debox::{Detail, Options, Tap, TraceOptions, Trigger};
use kit_units::parse_duration;

#[derive(Args)]
pub struct Measure {
    /// How calls are observed: by tracepoints in the kernel, or by time stamps in the program
    /// (cheaper, for dynamically linked programs)
    #[arg(long, value_enum, default_value_t = TapName::Kernel)]
    pub tap: TapName,
    /// What to measure in addition to budgets and faults; each item adds overhead
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "sleeps,cpu,samples",
        value_name = "LIST"
    )]
    pub detail: Vec<DetailName>,
    /// Show the kernel functions that calls enter, how they nest and how long they take. LIST names
    /// functions, wildcards (tcp_*) and groups; `!` before an item excludes it. Groups are vfs, mm,
    /// process, wait, block, fs, net (these are the default), syscalls, ext4, xfs, btrfs, security.
    /// If the kernel lets no function be probed: samples of the stack, and tracepoints passed
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub trace: Option<Vec<String>>,
    /// Follow functions down to this depth
    #[arg(long, value_name = "N", default_value_t = debox::trace::DEPTH_MAX, requires = "trace")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(debox::trace::DEPTH_MAX)))]
    pub trace_depth: u32,
    /// How functions are probed [default: the best method that the kernel offers]
    #[arg(long, value_enum, value_name = "METHOD", requires = "trace")]
    pub trace_method: Option<TraceMethod>,
    /// With detail callsites (which this enables): list by call site only the calls that took at
    /// least this long, such as 1ms; shorter ones then cost no capture of the stack
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub slow: Option<Duration>,
    /// Match calls as they end, before the program continues: keeps their stacks for the report and,
    /// after `=>`, sends `signal NAME` to the calling thread; fires at most `limit N/s` times
    /// (default 10/s), or `limit none`. Up to 8 triggers. debox/README.md describes the language
    #[arg(long, value_name = "PREDICATE [=> ACTIONS]", value_parser = parse_trigger)]
    pub trigger: Vec<Trigger>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write the report to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show all rows of each table
    #[arg(long)]
    pub all_rows: bool,
    /// Threads monitored at the same time, at most [default: 16384 under the kernel tap (1 kB of
    /// memory each), 2048 under the user tap (17 kB each)]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_threads: Option<u32>,
}

impl Measure {
    fn max_threads(&self) -> u32 {
        self.max_threads.unwrap_or(match self.tap {
            TapName::Kernel => 16384,
            TapName::User => 2048,
        })
    }

    fn trace_options(&self) -> Option<TraceOptions> {
        let named = |list: &Vec<String>| {
            list.iter()
                .filter(|item| !item.is_empty())
                .cloned()
                .collect()
        };
        self.trace.as_ref().map(|list| TraceOptions {
            functions: named(list),
            depth: self.trace_depth,
            method: self.trace_method.map(TraceMethod::method),
        })
    }

    pub fn session_options(&self) -> Options {
        let has = |name| self.detail.contains(&name);
        let callsites = has(DetailName::Callsites) || self.slow.is_some();
        Options {
            tap: match self.tap {
                TapName::Kernel => Tap::Kernel,
                TapName::User => Tap::User,
            },
            detail: Detail {
                // Call sites are recorded with sleeps.
                sleeps: has(DetailName::Sleeps) || callsites,
                callsites,
                irq: has(DetailName::Irq),
                io: has(DetailName::Io),
                cpu: has(DetailName::Cpu),
                samples: has(DetailName::Samples),
            },
            trace: self.trace_options(),
            triggers: self.trigger.clone(),
            slow_ns: self
                .slow
                .map_or(0, |slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX)),
            max_threads: self.max_threads(),
            max_records: match self.tap {
                TapName::Kernel => 0,
                TapName::User => self.max_threads(),
            },
            ..Options::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TapName {
    Kernel,
    User,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DetailName {
    /// Budgets and faults only (always measured)
    Basic,
    /// Where calls sleep, on what, and who wakes them
    Sleeps,
    /// Where in the program every call was made, with whole user stacks (sleeps alone shows the
    /// caller of each sleeping call)
    Callsites,
    /// Interrupts, separate from CPU time
    Irq,
    /// Bytes read from and written to storage
    Io,
    /// Who had the CPU that threads waited for, or which quota throttled them
    Cpu,
    /// Where the program computes: 199 samples per second of each CPU
    Samples,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceMethod {
    /// One probe for entry and return of many functions (kprobe.session)
    Session,
    /// One probe for entries and one for returns (kprobe.multi)
    Multi,
    /// A pair of probes for each function (fentry and fexit)
    Fentry,
    /// Samples of the stack and tracepoints passed: cheaper, without times
    Sampled,
}

impl TraceMethod {
    fn method(self) -> Method {
        match self {
            TraceMethod::Session => Method::Session,
            TraceMethod::Multi => Method::Multi,
            TraceMethod::Fentry => Method::Pairs,
            TraceMethod::Sampled => Method::Sampled,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// Keeps all lines of the error message.
pub fn parse_trigger(text: &str) -> Result<Trigger, String> {
    text.parse::<Trigger>()
        .map_err(|error| format!("{error:#}"))
}

pub fn parse_predicate(text: &str) -> Result<Predicate, String> {
    Predicate::parse(text).map_err(|error| error.to_string())
}
