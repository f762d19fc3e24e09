//! `debox guard`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kit_units::parse_duration;

use super::running::{Targets, TARGETS};

#[derive(Args)]
pub struct Guard {
    /// The threads to watch: auto (those that wait for events), main (of each process), all, a thread's id, or
    /// its name
    #[arg(long, value_name = "THREAD", value_parser = parse_thread, default_value = "auto")]
    pub thread: LoopThread,
    /// Calls that may block, in addition to the waits for events
    #[arg(long, value_name = "CALL", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Count a runtime's own waits, too: those of idle workers, of a garbage collector's helpers, and at the
    /// end of the process
    #[arg(long)]
    pub strict: bool,
    /// More rules for runtimes' own waits, in the format of debox/runtimes/libc.toml
    #[arg(long, value_name = "FILE", conflicts_with = "strict")]
    pub rules: Vec<PathBuf>,
    /// How long a call may sleep
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "200us")]
    pub max_blocked: Duration,
    /// End after this time, such as 10s; a command then gets SIGTERM
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// End at the first violation
    #[arg(long)]
    pub first: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = GuardFormat::Text)]
    pub format: GuardFormat,
    /// Write the result to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With targets: write violations to standard output as they are found, as lines of JSON, and answer each
    /// line of standard input once all earlier calls have been checked; end at the end of standard input
    #[arg(long, requires = TARGETS)]
    pub stream: bool,
    #[command(flatten)]
    pub targets: Targets,
    /// The command and its arguments
    #[arg(last = true, num_args = 1.., value_name = "CMD")]
    #[arg(conflicts_with = TARGETS, required_unless_present = TARGETS)]
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
