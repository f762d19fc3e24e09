//! Commands that write and read histories.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use debox::predicate::Predicate;
use debox::{Detail, Options, Trigger};
use kit_units::{parse_duration, parse_size};

use super::measure::{parse_predicate, parse_trigger};

#[derive(Args)]
pub struct Record {
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Monitor processes that are already running, as in 12,34 or -p 12 -p 34: all their threads, all
    /// processes that descend from them, and what these start from now on
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pub pid: Vec<u32>,
    /// With --pid: monitor the named processes alone, without their children
    #[arg(long, requires = "pid")]
    pub only: bool,
    /// With a command: go on when it has ended, until all processes that it has started have ended, too, as with a
    /// program that becomes a daemon. Ctrl-C or SIGTERM then ends the recording, and none of the processes
    #[arg(long, conflicts_with = "pid")]
    pub follow: bool,
    /// With --pid: how long, such as 500ms, 10s or 2m; without it until all the processes have ended, or
    /// Ctrl-C
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
    /// With a command: how long each call takes as the program sees it, too, from just before the call
    /// to just after it (a preloaded library looks at the clock there; it sees what goes through
    /// glibc's functions). `debox report` sets both beside each other
    #[arg(long, conflicts_with = "pid")]
    pub user_level: bool,
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
    /// Threads monitored at the same time, at most: 16384 (1 kB of memory each), with --user-level 2048
    /// (17 kB each)
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_threads: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "CMD")]
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
            adopts_sleeps: !self.pid.is_empty(),
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
    /// Draw the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report as JSON, to `-` for standard output (debox/schema/history-report-1.json)
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
    /// Write the whole file here and leave FILE as it is: another file, or a directory, which may be on
    /// another disk
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
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
    /// The time that folded stacks have, and that pprof shows first; or samples of what it computed
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
    /// No time, but how many samples of the CPUs' clocks found the program there
    Samples,
}
