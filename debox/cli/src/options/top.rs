// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox top`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use debox::predicate::Predicate;
use kit_units::parse_duration;

use super::measure::{parse_predicate, Format};
use super::running::{Targets, TARGETS};

#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    pub targets: Targets,
    /// Monitor only the processes that are named now, without their children and without those that join later
    #[arg(long, requires = TARGETS)]
    pub only: bool,
    /// What a row is
    #[arg(long, value_enum, default_value_t = By::Process)]
    pub by: By,
    /// What rows are sorted by, the largest first
    #[arg(long, value_enum, default_value_t = SortBy::Wait)]
    pub sort: SortBy,
    /// Show only waits that match, in the language of triggers. The waits of a thread at one place count as one
    /// call: 'class == disk && longest > 10ms', 'comm == nginx*'
    #[arg(long, value_name = "PREDICATE", value_parser = parse_predicate)]
    pub filter: Option<Predicate>,
    /// Also count waits for work: for events, timers, requests
    #[arg(long)]
    pub idle: bool,
    /// Show processes and threads of containers with the numbers that they have inside
    #[arg(long)]
    pub inside: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s")]
    pub interval: Duration,
    /// Print tables to standard output, for logs
    #[arg(long)]
    pub batch: bool,
    /// With --batch: end after so many intervals [default: with Ctrl-C]
    #[arg(short = 'n', long, value_name = "N", requires = "batch")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// With --batch: rows of each table, at most
    #[arg(long, value_name = "N", default_value_t = 20, requires = "batch")]
    pub rows: usize,
    /// With --batch: output format; JSON is one object per line (debox/schema/top-1.json)
    #[arg(long, value_enum, default_value_t = Format::Table, requires = "batch")]
    pub format: Format,
    /// Threads monitored at the same time, at most (2 kB of memory each)
    #[arg(long, value_name = "N", default_value_t = 16384)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_threads: u32,
}

/// What waits are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    Process,
    Thread,
    /// The container or unit, or else the control group
    Unit,
    Call,
    /// What a call waits for, in words
    Label,
    Class,
    /// The file, lock or socket that is waited for
    Resource,
    /// Who holds what is waited for
    Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Time of waiting that is likely to slow something down; then of all other waiting
    Wait,
    Cpu,
    /// The longest single wait
    Longest,
    /// How many waits
    Waits,
    Name,
}
