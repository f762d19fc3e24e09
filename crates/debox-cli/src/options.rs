//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use debox::broker::{Limits, SOCKET};
use debox::predicate::Predicate;
use debox::trace::Method;
use debox::{Detail, Options, Tap, TraceOptions, Trigger};

#[derive(Parser)]
#[command(name = "debox", version, about, max_term_width = 100)]
#[command(about = "Shows where every nanosecond of a program's system calls went")]
pub struct Cli {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
pub enum Subcommand {
    /// Run a command and report on its system calls when it ends
    #[command(
        after_help = "Examples:\n  debox run -- tar czf /tmp/etc.tar.gz /etc\n  \
        debox run --trigger 'syscall == open* && blocked > 1ms' \\\n            \
        --trigger 'class == disk && wall > 50ms => signal USR1, limit 1/s' -- ./server\n\n\
        Needs root, or a broker (`debox broker`), which DEBOX_BROKER names if it is not at the usual \
        place. Through a broker there is no --trace and no --detail callsites.\n\n\
        Exit status: that of the command; 128+n if signal n ended it; 125 if debox failed, \
        126 if the command cannot be executed, 127 if it is not found, 2 for a usage error."
    )]
    Run(Run),
    /// Report on a process that is already running
    #[command(
        after_help = "Examples:\n  debox attach -p $(pidof -s nginx) --for 10s\n  \
        debox attach -p $(pidof -s nginx) --for 1m --trigger 'longest > 1ms && label != epoll'\n\n\
        Ends with the process, after --for, or with Ctrl-C."
    )]
    Attach(Attach),
    /// Keep every record of a program's calls in a Parquet file
    #[command(
        after_help = "Examples:\n  debox record -o trace.parquet -- tar czf /tmp/etc.tar.gz /etc\n  \
        debox record -o trace.parquet -p $(pidof -s nginx) --for 10s\n  \
        debox record -o hangs.parquet -p PID --for 5s   # then: debox report hangs.parquet\n  \
        debox record -o last.parquet --flight 30s -p $(pidof -s nginx)   # kill -USR1 writes it\n  \
        debox record -o slow.parquet --flight 5s --trigger 'syscall == open* && wall > 50ms' -- ./server\n\n\
        Needs root. The file can be read at any time, also after a kill -9, which loses two seconds \
        at most; what is not sealed yet is beside it in FILE.tail. In FILE, {host}, {hour} (UTC) and \
        {part} stand for what they say. Calls that have not returned at the end are its last rows.\n\n\
        Exit status: that of the command, as with `debox run`."
    )]
    Record(Record),
    /// Test that an event loop never blocks
    #[command(
        after_help = "Examples:\n  debox guard --for 10s -- node server.js\n  \
        debox guard --max-blocked 1ms -p $(pidof -s redis-server) --for 10s\n\n\
        Finds the loops by itself: threads that wait for events (epoll_wait, io_uring_enter; poll and \
        select in a main thread), from their first such wait on. Any other call of such a thread that \
        sleeps longer than --max-blocked is a violation, and so is a page fault between calls, and a \
        wait for events in a loop inside the loop (on another epoll descriptor).\n\n\
        Exit status: that of the command, or 0 when it was told to end after --for; 3 if a loop \
        blocked, or if it cannot be said that none did; else as with `debox run`."
    )]
    Guard(Guard),
    /// Say what a recording shows: findings, budgets, waits, latencies, what gets more expensive
    #[command(after_help = "Examples:\n  debox report trace.parquet\n  \
        debox report trace.parquet --html report.html\n  \
        debox report after.parquet --against before.parquet\n\n\
        Reads files of `debox record`, several of one recording, and directories of them. The page is \
        one file that opens without a network.\n\n\
        Exit status: 0 if the report was made, whatever it says; 125 if a file cannot be read.")]
    Report(Report),
    /// Make one whole file of what a killed recorder left
    #[command(after_help = "Example:\n  debox repair trace.parquet")]
    Repair(Repair),
    /// Write a history in another tool's format
    #[command(
        after_help = "Examples:\n  debox export trace.parquet -o trace.pftrace        # open in ui.perfetto.dev\n  \
        debox export trace.parquet -o trace.pb.gz          # go tool pprof -http :8080 trace.pb.gz\n  \
        debox export trace.parquet --format folded | inferno-flamegraph > blocked.svg\n  \
        debox export trace.parquet --format ndjson --filter 'blocked > 1ms' | jq .call\n\n\
        docs/export.md says what each format shows. A file is put in place when it is whole.\n\n\
        Exit status: 0; 125 if debox failed; 2 for a usage error."
    )]
    Export(Export),
    /// Serve programs of users without privilege: load the probes once, for all of them
    #[command(
        after_help = "Runs in the foreground until SIGTERM or Ctrl-C; needs root. \
        `make install` brings a systemd unit: systemctl enable --now debox-broker\n\n\
        Programs find it by its socket, or by the one that DEBOX_BROKER names. SECURITY.md says what \
        they can do and see."
    )]
    Broker(Broker),
    /// Say what this machine allows, what is missing, what each lack costs, and the remedy
    #[command(after_help = "Exit status: 0 if debox works here, 1 if something prevents it.")]
    Doctor(Doctor),
    /// Write the manual pages
    #[command(hide = true)]
    Man(Man),
    /// Print a shell's completions
    #[command(hide = true)]
    Completions(Completions),
}

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub measure: Measure,
    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Args)]
pub struct Attach {
    #[command(flatten)]
    pub measure: Measure,
    /// The process to monitor, all its threads and the children it starts from now on
    #[arg(short, long)]
    pub pid: u32,
    /// How long, such as 500ms, 10s or 2m; without it until the process ends or Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

#[derive(Args)]
pub struct Record {
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Monitor a process that is already running, its threads and the children it starts from now on
    #[arg(
        short,
        long,
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pub pid: Option<u32>,
    /// With --pid: how long, such as 500ms, 10s or 2m; without it until the process ends or Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, requires = "pid")]
    pub duration: Option<Duration>,
    /// What to measure besides: irq (interrupts apart from CPU time), io (bytes fetched from and sent
    /// to storage)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub detail: Vec<MoreDetail>,
    /// Take the program's stack for calls that took at least so long; a look at the stack costs each
    /// about a microsecond
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10us")]
    pub stacks_from: Duration,
    /// Keep only records for which this holds, as in 'blocked > 1ms && label != epoll'
    #[arg(long, value_name = "PREDICATE", value_parser = parse_predicate)]
    pub filter: Option<Predicate>,
    /// Begin another file when this one has grown to so many bytes, as in 100M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rotate_size: Option<u64>,
    /// Begin another file after so long, as in 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub rotate_time: Option<Duration>,
    /// With rotation: remove the oldest file of this recording when there are more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_files: Option<u32>,
    /// Keep the last so many seconds in memory, and write them when debox gets SIGUSR1
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with_all = ["rotate_size", "rotate_time"])]
    pub flight: Option<Duration>,
    /// With --flight: write the records, too, when a call ends for which PREDICATE holds, at most once a
    /// second. ACTIONS are those of `debox run`
    #[arg(long, value_name = "PREDICATE [=> ACTIONS]", value_parser = parse_trigger)]
    #[arg(requires = "flight")]
    pub trigger: Vec<Trigger>,
    /// With --flight: memory for the records, as in 256M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub flight_memory: u64,
    /// Memory for records that have not been taken in yet, as in 64M; a power of two
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub buffer: u64,
    /// Print the report of `debox run`, too
    #[arg(long)]
    pub report: bool,
    /// Threads monitored at the same time, at most; each takes 1 kB of memory
    #[arg(long, value_name = "N", default_value_t = 16384)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_threads: u32,
    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

impl Record {
    pub fn session_options(&self) -> Options {
        Options {
            detail: Detail {
                sleeps: true,
                callsites: true,
                irq: self.detail.contains(&MoreDetail::Irq),
                io: self.detail.contains(&MoreDetail::Io),
            },
            slow_ns: u64::try_from(self.stacks_from.as_nanos()).unwrap_or(u64::MAX),
            max_threads: self.max_threads,
            adopts_sleeps: self.pid.is_some(),
            triggers: self.trigger.clone(),
            history_bytes: u32::try_from(self.buffer.next_power_of_two())
                .unwrap_or(1 << 31)
                .clamp(1 << 16, 1 << 31),
            ..Options::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MoreDetail {
    Irq,
    Io,
}

#[derive(Args)]
pub struct Guard {
    /// The threads to look at: auto (those that wait for events), main (of each process), all, a
    /// thread's id, or its name
    #[arg(long, value_name = "THREAD", value_parser = parse_thread, default_value = "auto")]
    pub thread: LoopThread,
    /// Calls that may block, beside the waits for events
    #[arg(long, value_name = "CALL", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// How long a call may sleep
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "200us")]
    pub max_blocked: Duration,
    /// End after so long, as in 10s; a command gets SIGTERM then
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// End at the first violation
    #[arg(long)]
    pub first: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = GuardFormat::Text)]
    pub format: GuardFormat,
    /// Where to write the result instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With --pid: write violations to standard output as they come, as lines of JSON, and answer each
    /// line of standard input when everything up to it has been looked at; end with standard input
    #[arg(long, requires = "pid")]
    pub stream: bool,
    /// Guard a process that is already running
    #[arg(
        short,
        long,
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pub pid: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

impl Guard {
    pub fn max_blocked_ns(&self) -> u64 {
        u64::try_from(self.max_blocked.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Which threads are event loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopThread {
    Auto,
    Main,
    All,
    Tid(u32),
    Named(String),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GuardFormat {
    Text,
    Json,
    Junit,
}

#[derive(Args)]
pub struct Report {
    /// Files of a recording, or directories of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Draw the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report as JSON, to `-` for standard output (schema/history-report-1.json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    #[arg(require_equals = true)]
    pub json: Option<PathBuf>,
    /// Compare with another recording: what differs, and what the data do not show
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Show all rows of each table
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
pub struct Repair {
    /// The file; what is in FILE.tail goes into it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Args)]
pub struct Export {
    /// What `debox record` wrote: files, and directories of files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Without it, by the end of the output's name: .pftrace, .pb.gz, .folded, .ndjson
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<ExportFormat>,
    /// Where to write it; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// The time that folded stacks have, and that pprof shows first
    #[arg(long, value_enum, value_name = "TIME", default_value_t = ExportWeight::Blocked)]
    pub weight: ExportWeight,
    /// Only records for which this holds, as in 'blocked > 1ms && label != epoll'
    #[arg(long, value_name = "PREDICATE", value_parser = parse_predicate)]
    pub filter: Option<Predicate>,
    /// Only calls that began so long after the start of the recording, or later: 2.5 (seconds), 300ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub from: Option<Duration>,
    /// Only calls that began before
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub to: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A trace for ui.perfetto.dev: threads, calls, sleeps, who woke whom
    Perfetto,
    /// A profile for go tool pprof
    Pprof,
    /// Stacks for flame graphs
    Folded,
    /// A line of JSON for each call
    Ndjson,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportWeight {
    Blocked,
    Cpu,
    Runqueue,
}

#[derive(Args)]
pub struct Broker {
    /// Where to listen
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Processes that one user may have monitored at the same time
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients_per_user: u32,
    /// Processes in all
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Threads of one process and its children; each takes 17 kB of kernel memory
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads_per_client)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_per_client: u32,
    /// Threads of all processes of one user
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub threads_per_user: u32,
    /// Threads in all
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub threads: u32,
    /// Commands that one user may have under `debox run` at the same time
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=64))]
    pub runs_per_user: u32,
    /// Such commands in all; each has probes of its own, which all processes pay for meanwhile
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=64))]
    pub runs: u32,
}

impl Broker {
    pub fn limits(&self) -> Limits {
        Limits {
            clients_per_user: self.clients_per_user,
            clients: self.clients,
            threads_per_client: self.threads_per_client,
            threads_per_user: self.threads_per_user,
            threads: self.threads,
            runs_per_user: self.runs_per_user,
            runs: self.runs,
            ..Limits::default()
        }
    }
}

#[derive(Args)]
pub struct Doctor {
    /// How to print what was found
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Args)]
pub struct Man {
    /// The directory to write to; without it the first page is printed
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Args)]
pub struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Measure {
    /// How calls are seen: by tracepoints in the kernel, or by stamps in the program (cheaper,
    /// for dynamically linked programs)
    #[arg(long, value_enum, default_value_t = TapName::Kernel)]
    pub tap: TapName,
    /// What to measure beyond budgets and faults; more costs more
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "sleeps",
        value_name = "LIST"
    )]
    pub detail: Vec<DetailName>,
    /// Show the kernel functions that calls enter, how they nest and how long they take. LIST has
    /// functions, wildcards (tcp_*) and groups; `!` before one leaves it out. Groups are vfs, mm,
    /// process, wait, block, fs, net (these without a LIST), syscalls, ext4, xfs, btrfs, security.
    /// Where the kernel lets no function be probed: samples of the stack, and tracepoints passed
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub trace: Option<Vec<String>>,
    /// Follow functions down to this depth
    #[arg(long, value_name = "N", default_value_t = debox::trace::DEPTH_MAX, requires = "trace")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(debox::trace::DEPTH_MAX)))]
    pub trace_depth: u32,
    /// How functions are seen; without it the best way that the kernel offers
    #[arg(long, value_enum, value_name = "METHOD", requires = "trace")]
    pub trace_method: Option<TraceMethod>,
    /// With detail callsites (which it asks for): list by call site only the calls that took at
    /// least so long, as in 1ms; shorter ones then cost no look at the stack
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub slow: Option<Duration>,
    /// Look for a call when it ends, before the program goes on: keeps its stacks for the report and,
    /// after `=>`, sends `signal NAME` to its thread; fires `limit N/s` times at most (10/s), or
    /// `limit none`. Up to 8. README.md has the language
    #[arg(long, value_name = "PREDICATE [=> ACTIONS]", value_parser = parse_trigger)]
    pub trigger: Vec<Trigger>,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Where to write the report instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show all rows of each table
    #[arg(long)]
    pub all: bool,
    /// Threads monitored at the same time, at most: 16384 under the kernel tap (1 kB of memory
    /// each), 2048 under the user tap (17 kB each)
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
                // What is asked of sleeps needs the sleeps.
                sleeps: has(DetailName::Sleeps) || callsites,
                callsites,
                irq: has(DetailName::Irq),
                io: has(DetailName::Io),
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
    /// Where in the program every call was made, by whole user stacks (sleeps alone tell the
    /// caller of each sleeping call)
    Callsites,
    /// Interrupts apart from CPU time
    Irq,
    /// Bytes fetched from and sent to storage
    Io,
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

/// The message of a wrong one has lines of its own.
fn parse_trigger(text: &str) -> Result<Trigger, String> {
    text.parse::<Trigger>()
        .map_err(|error| format!("{error:#}"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: f64 = number
        .parse()
        .map_err(|_| "expected a number and a unit, as in 10s")?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be ns, us, ms, s, m or h".to_string()),
    };
    Duration::try_from_secs_f64(seconds * scale).map_err(|error| error.to_string())
}

fn parse_thread(text: &str) -> Result<LoopThread, String> {
    Ok(match text {
        "auto" => LoopThread::Auto,
        "main" => LoopThread::Main,
        "all" => LoopThread::All,
        "" => return Err("expected auto, main, all, a thread's id or its name".to_string()),
        name => match name.parse() {
            Ok(tid) => LoopThread::Tid(tid),
            Err(_) => LoopThread::Named(name.to_string()),
        },
    })
}

fn parse_predicate(text: &str) -> Result<Predicate, String> {
    Predicate::parse(text).map_err(|error| error.to_string())
}

/// With a unit of 1024, as in 64M.
fn parse_size(text: &str) -> Result<u64, String> {
    let (number, scale) = match text.strip_suffix(['k', 'K', 'M', 'G', 'T']) {
        None => (text, 0),
        Some(number) => match text.as_bytes()[text.len() - 1] {
            b'k' | b'K' => (number, 10),
            b'M' => (number, 20),
            b'G' => (number, 30),
            _ => (number, 40),
        },
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a number of bytes, as in 100M")?;
    match number.checked_mul(1 << scale) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("the size must be more than 0 and fit into 64 bits".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in [
            "",
            "s",
            "10d",
            "-1s",
            "1e400h",
            "99999999999999999999999999h",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("512"), Ok(512));
        for bad in ["", "M", "0", "1.5G", "-1k", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
