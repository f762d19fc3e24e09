//! The command line.

mod guard;
#[cfg(feature = "recordings")]
mod history;
mod measure;
mod running;
mod top;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser};
use debox::broker::{Limits, SOCKET, SUBORDINATES};
use kit_console::manual::{Completions, Man};
use kit_units::{parse_duration, parse_size};

pub use guard::{Guard, GuardFormat, LoopThread};
#[cfg(feature = "recordings")]
pub use history::{Export, ExportFormat, ExportWeight, GroupBy, Record, Repair, Report};
pub use measure::{Format, Measure, TapName};
pub use running::{Targets, TARGETS, TARGET_NAMES};
pub use top::{By, SortBy, Top};

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
        place. Through a broker there is no --trace.\n\n\
        Exit status: that of the command; 128+n if signal n ended it; 125 if debox failed, \
        126 if the command cannot be executed, 127 if it is not found, 2 for a usage error. It stays \
        the command's if standard error does not take the report; a report that --output FILE does not \
        take is a failure of debox, and goes to standard error."
    )]
    Run(Run),
    /// Report on processes that are already running
    #[command(
        group = required_targets(),
        after_help = "Examples:\n  debox attach -p $(pidof -s nginx) --for 10s\n  \
        debox attach -p $(pidof -s nginx) --for 1m --trigger 'longest > 1ms && label != epoll'\n  \
        debox attach -p 4711,4712 --only --for 5s\n  \
        debox attach --unit nginx --user postgres --for 10s\n  \
        debox attach --container web --for 10s\n  \
        debox attach --all --for 5s\n\n\
        Ends when all processes named with --pid have ended, after --for, or with Ctrl-C. A process whose \
        parent ended before it was attached to (a daemon) descends from none: name it, too. debox itself and \
        a broker are never among the processes that a name, user, group or --all stands for.\n\n\
        Needs root, or a broker (`debox broker`), through which any user attaches to their own processes.\n\n\
        Exit status: 0; 125 if debox failed, or the report cannot be written; 2 for a usage error."
    )]
    Attach(Attach),
    #[cfg(feature = "recordings")]
    /// Keep every record of a program's calls in a Parquet file
    #[command(
        after_help = "Examples:\n  debox record -o trace.parquet -- tar czf /tmp/etc.tar.gz /etc\n  \
        debox record -o trace.parquet -p $(pidof -s nginx) --for 10s\n  \
        debox record -o hangs.parquet -p PID --for 5s   # then: debox report hangs.parquet\n  \
        debox record -o last.parquet --flight 30s -p $(pidof -s nginx)   # kill -USR1 writes it\n  \
        debox record --user-level -o both.parquet -- ./server   # as the program's own clock has it, too\n  \
        debox record -o slow.parquet --flight 5s --trigger 'syscall == open* && wall > 50ms' -- ./server\n\n\
        Needs root, or a broker (`debox broker`), through which any user records their own processes, \
        without --user-level. The file can be read at any time, also after a kill -9, which loses two seconds \
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
        Needs root, or a broker (`debox broker`), through which any user guards their own processes.\n\n\
        Exit status: that of the command, or 0 when it was told to end after --for; 3 if a loop \
        blocked, or if it cannot be said that none did; else as with `debox run`."
    )]
    Guard(Guard),
    /// Show live who waits for what, why, and who holds them up
    #[command(
        after_help = "Examples:\n  debox top                       # the whole machine\n  \
        debox top --unit postgresql\n  debox top --comm node --by thread\n  \
        debox top --batch -n 5 --by owner --filter 'class == lock'\n  \
        debox top --batch --format json --interval 10s >> waits.ndjson\n\n\
        Without targets: --all. debox/docs/top.md describes the screen; the key ? shows the keys.\n\n\
        Needs root, or a broker (`debox broker`), through which any user sees their own processes; --all \
        means these then.\n\n\
        Exit status: 0; 125 if debox failed; 2 for a usage error."
    )]
    Top(Top),
    #[cfg(feature = "recordings")]
    /// Show what a recording contains: findings, budgets, waits, latencies, and what gets more expensive
    #[command(after_help = "Examples:\n  debox report trace.parquet\n  \
        debox report trace.parquet --html report.html\n  \
        debox report after.parquet --against before.parquet\n\n\
        Reads files of `debox record`, several of one recording, and directories of them. The page is \
        one file that opens without a network.\n\n\
        Exit status: 0 if the report was made, whatever it says; 125 if a file cannot be read.")]
    Report(Report),
    #[cfg(feature = "recordings")]
    /// Make one complete file of what a killed recorder left
    #[command(after_help = "Example:\n  debox repair trace.parquet")]
    Repair(Repair),
    #[cfg(feature = "recordings")]
    /// Write a history in another tool's format
    #[command(
        after_help = "Examples:\n  debox export trace.parquet -o trace.pftrace        # open in ui.perfetto.dev\n  \
        debox export trace.parquet -o trace.pb.gz          # go tool pprof -http :8080 trace.pb.gz\n  \
        debox export trace.parquet --format folded | inferno-flamegraph > blocked.svg\n  \
        debox export trace.parquet --format ndjson --filter 'blocked > 1ms' | jq .call\n\n\
        debox/docs/export.md says what each format shows. A file is put in place when it is whole.\n\n\
        Exit status: 0; 125 if debox failed; 2 for a usage error."
    )]
    Export(Export),
    /// Not in this build: record, report, repair and export
    #[cfg(not(feature = "recordings"))]
    #[command(hide = true, aliases = ["report", "repair", "export"])]
    Record(NotBuilt),
    /// Serve programs of unprivileged users: load the probes once, for all of them
    #[command(
        after_help = "Runs in the foreground until SIGTERM or Ctrl-C; needs root. \
        `make install` brings a systemd unit: systemctl enable --now debox-broker\n\n\
        Programs find it by its socket, or by the one that DEBOX_BROKER names. SECURITY.md says what \
        they can do and see."
    )]
    Broker(Broker),
    /// Show what this machine allows, what is missing, what that costs, and how to fix it
    #[command(after_help = "Exit status: 0 if debox works here, 1 if something prevents it.")]
    Doctor(Doctor),
    /// Write the manual pages
    #[command(hide = true)]
    Man(Man),
    /// Print a shell's completions
    #[command(hide = true)]
    Completions(Completions),
}

/// The arguments of a subcommand that this build does not have.
#[cfg(not(feature = "recordings"))]
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct NotBuilt {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _any: Vec<std::ffi::OsString>,
}

/// One of the targets has to be given.
fn required_targets() -> ArgGroup {
    ArgGroup::new("required_targets")
        .args(TARGET_NAMES)
        .required(true)
        .multiple(true)
}

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub measure: Measure,
    /// Continue after the command has ended, until all processes that it started have ended, such as those
    /// of a daemon. Ctrl-C or SIGTERM then ends the report, but none of the processes
    #[arg(long)]
    pub follow: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Args)]
pub struct Attach {
    #[command(flatten)]
    pub measure: Measure,
    #[command(flatten)]
    pub targets: Targets,
    /// Monitor only the processes that are named now, without their children and without those that join later
    #[arg(long, requires = TARGETS)]
    pub only: bool,
    /// How long to monitor, such as 500ms, 10s or 2m [default: until all processes named with --pid have ended; with
    /// other targets, until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

#[derive(Args)]
pub struct Broker {
    /// The socket to listen on
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Monitored processes of one user, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients_per_user: u32,
    /// Monitored processes of all users, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Threads of one process and its children, at most; each takes 17 kB of kernel memory
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads_per_client)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_per_client: u32,
    /// Threads of all processes of one user, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub threads_per_user: u32,
    /// Threads of all users, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().threads)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub threads: u32,
    /// Sessions that one user may have at the same time: `debox run`, `attach`, `guard`, `record`, `top`
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs_per_user)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=64))]
    pub runs_per_user: u32,
    /// Such sessions of all users, at most; each has its own probes, which slow down all processes while it
    /// runs
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=64))]
    pub runs: u32,
    /// Such sessions that one user may begin per minute, after 60 at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs_per_minute)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=6000))]
    pub runs_per_minute: u32,
    /// CPU time that the broker spends for one user, in percent of one CPU on average; several seconds at
    /// once
    #[arg(long, value_name = "N", default_value_t = Limits::default().cpu_percent)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cpu_percent: u32,
    /// Memory to use, kernel memory included, such as 768M; one user gets half of it at most [default:
    /// three quarters of the limit of the broker's control group, or a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// The owners of subordinate user ids; processes with such an id count for its owner
    #[arg(long, value_name = "FILE", default_value = SUBORDINATES)]
    pub subordinates: PathBuf,
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
            runs_per_minute: self.runs_per_minute,
            cpu_percent: self.cpu_percent,
            memory: self.memory,
            ..Limits::default()
        }
    }
}

#[derive(Args)]
pub struct Doctor {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_its_page_and_is_completed() {
        kit_console::manual::check(&Cli::command());
    }
}
