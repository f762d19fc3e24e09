//! Commands that write and read histories.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use debox::predicate::Predicate;
use debox::{Detail, Options, Trigger};
use debox_report::requests::Rule;
use kit_units::{parse_duration, parse_size};

use super::measure::{parse_predicate, parse_trigger};
use super::running::{Targets, TARGETS};

#[derive(Args)]
pub struct Record {
    /// Output file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub targets: Targets,
    /// With targets: record only the processes that are named now, without their children and without those that join
    /// later
    #[arg(long, requires = TARGETS)]
    pub only: bool,
    /// With a command: continue after it has ended, until all processes that it started have ended, such as those
    /// of a daemon. Ctrl-C or SIGTERM then ends the recording, but none of the processes
    #[arg(long, conflicts_with = TARGETS)]
    pub follow: bool,
    /// With targets: how long to record, such as 500ms, 10s or 2m [default: until all processes named with --pid have
    /// ended; with other targets, until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, requires = TARGETS)]
    pub duration: Option<Duration>,
    /// What to measure in addition: irq (interrupts, separate from CPU time), io (bytes read from and written to
    /// storage)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub detail: Vec<MoreDetail>,
    /// Capture the program's stack for calls that take at least this long; each capture costs about a microsecond
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10us")]
    pub stacks_from: Duration,
    /// With a command: also measure each call as the program sees it, from just before the call to just after it.
    /// A preloaded library reads the clock there; it sees calls made through glibc's functions. `debox report`
    /// compares both
    #[arg(long, conflicts_with = TARGETS)]
    pub user_level: bool,
    /// Keep only records that match, such as 'blocked > 1ms && label != epoll'
    #[arg(long, value_name = "PREDICATE", value_parser = parse_predicate)]
    pub filter: Option<Predicate>,
    /// Start another file when this one reaches this size, such as 100M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rotate_size: Option<u64>,
    /// Start another file after this time, such as 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub rotate_time: Option<Duration>,
    /// With rotation: the number of files to keep; the oldest ones of this recording are removed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_files: Option<u32>,
    /// Keep the last TIME in memory, and write it to the file when debox gets SIGUSR1
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with_all = ["rotate_size", "rotate_time"])]
    pub flight: Option<Duration>,
    /// With --flight: also write the records when a call ends that matches PREDICATE, at most once a second.
    /// ACTIONS are those of `debox run`
    #[arg(long, value_name = "PREDICATE [=> ACTIONS]", value_parser = parse_trigger)]
    #[arg(requires = "flight")]
    pub trigger: Vec<Trigger>,
    /// With --flight: memory for the records, such as 256M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub flight_memory: u64,
    /// Memory for records that debox has not read yet, such as 64M; rounded up to a power of two
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub buffer: u64,
    /// Also print the report of `debox run`
    #[arg(long)]
    pub report: bool,
    /// Threads monitored at the same time, at most [default: 16384 (1 kB of memory each), or 2048 with
    /// --user-level (17 kB each)]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_threads: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "CMD")]
    #[arg(conflicts_with = TARGETS, required_unless_present = TARGETS)]
    pub command: Vec<std::ffi::OsString>,
}

impl Record {
    pub fn session_options(&self) -> Options {
        let usual = if self.user_level { 2048 } else { 16384 };
        let max_threads = self.max_threads.unwrap_or(usual);
        Options {
            detail: Detail {
                sleeps: true,
                callsites: true,
                irq: self.detail.contains(&MoreDetail::Irq),
                io: self.detail.contains(&MoreDetail::Io),
                cpu: true,
                samples: true,
            },
            slow_ns: u64::try_from(self.stacks_from.as_nanos()).unwrap_or(u64::MAX),
            max_threads,
            max_records: if self.user_level { max_threads } else { 0 },
            user_stamps: self.user_level,
            adopts_sleeps: !self.targets.is_empty(),
            one_process: self.only,
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
pub struct Report {
    /// Files of a recording, or directories of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report as JSON; `-` is standard output (debox/schema/history-report-1.json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    #[arg(require_equals = true)]
    pub json: Option<PathBuf>,
    /// Compare with another recording: what differs, and which differences the data do not show
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Show the statistics of each call alone: count, total, shortest, mean, longest, deviation, quantiles
    #[arg(long, conflicts_with_all = ["html", "against"])]
    pub calls: bool,
    /// Show the time by process, or by unit or container, alone; with numbers inside of containers
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["html", "against", "calls", "requests"])]
    pub by: Option<GroupBy>,
    /// Show what a server did for its requests, in phases; with --json as JSON (debox/schema/requests-1.json)
    #[arg(long, conflicts_with_all = ["html", "against", "calls"])]
    pub requests: bool,
    /// With --requests: calls that match PREDICATE are a phase of their own, such as 'log: syscall == write && arg0 == 5'
    #[arg(long, value_name = "NAME: PREDICATE", value_parser = parse_phase, requires = "requests")]
    pub phase: Vec<Rule>,
    /// Show all rows of each table
    #[arg(long)]
    pub all: bool,
}

fn parse_phase(text: &str) -> Result<Rule, String> {
    let (phase, predicate) = text
        .split_once(':')
        .ok_or("a phase is NAME: PREDICATE, as in 'log: syscall == write && arg0 == 5'")?;
    Ok(Rule {
        phase: phase.trim().to_string(),
        predicate: parse_predicate(predicate.trim())?,
    })
}

/// What the time of a recording is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    Process,
    /// The container or unit, or else the control group
    Unit,
}

#[derive(Args)]
pub struct Repair {
    /// The file to repair; the content of FILE.tail is added to it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the complete file here and leave FILE unchanged: another file, or a directory, which may be on
    /// another disk
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

#[derive(Args)]
pub struct Export {
    /// Files that `debox record` wrote, or directories of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Output format [default: by the output's extension: .pftrace, .pb.gz, .folded, .ndjson, .txt, .csv]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<ExportFormat>,
    /// Output file; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// The time that folded stacks show, and that pprof shows first; or samples of where the program computed
    #[arg(long, value_enum, value_name = "TIME", default_value_t = ExportWeight::Blocked)]
    pub weight: ExportWeight,
    /// Only records that match, such as 'blocked > 1ms && label != epoll'
    #[arg(long, value_name = "PREDICATE", value_parser = parse_predicate)]
    pub filter: Option<Predicate>,
    /// Only calls that began at this time after the start of the recording, or later: 2.5 (seconds), 300ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub from: Option<Duration>,
    /// Only calls that began before this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub to: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A trace for ui.perfetto.dev: threads, calls, sleeps, wakers
    Perfetto,
    /// A profile for go tool pprof
    Pprof,
    /// Stacks for flame graphs
    Folded,
    /// One line of JSON per call
    Ndjson,
    /// One line of text per call, in the order of time: arguments, result, duration, what it waited for
    Text,
    /// One line of values per call: the raw series with its arguments, for a spreadsheet or a plot
    Csv,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportWeight {
    Blocked,
    Cpu,
    Runqueue,
    /// No time: the number of samples that found the program there
    Samples,
}
