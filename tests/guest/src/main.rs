// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the whole-system tests on other kernels. Each kernel is booted in QEMU with software
//! emulation, with this machine's own file system as a read-only root, so the programs built here
//! also run there.
//!
//! The README.md in this crate says how to use it, and what is left out.

mod boot;
mod built;
mod commands;
mod fetch;
mod image;
mod inside;
mod installed;
mod kernels;
mod left_out;
mod matrix;
mod own_disk;
mod report;
mod unit;
mod unit_targets;

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use clap::Parser;

use crate::boot::Clock;
use crate::boot::Hardware;
use crate::inside::Plan;
use crate::kernels::Kernel;
use crate::left_out::Set;
use crate::report::GuestReport;

/// Runs debox's tests on other kernels and prints a matrix: kernel by feature and test.
#[derive(Debug, Parser)]
struct Options {
    /// Kernels to boot: 6.1, 6.12, newest [default: all]. With --enter, a command
    kernels: Vec<String>,

    /// Output of `cargo test --no-run --message-format json`, which names the test programs
    #[arg(long, required_unless_present_any = ["inside", "unit", "unit_check", "serve", "enter"])]
    built: Option<PathBuf>,

    /// Directory in which kernels are kept between runs
    #[arg(long, required_unless_present_any = ["inside", "unit_check", "enter"])]
    cache: Option<PathBuf>,

    /// Fetch the newest packages of the kernels again
    #[arg(long)]
    refresh: bool,

    /// Run only tests whose name contains one of these
    #[arg(long)]
    only: Vec<String>,

    /// Run one test of each kind
    #[arg(long, conflicts_with = "all")]
    quick: bool,

    /// Also run the tests of what is built on top of the records
    #[arg(long)]
    all: bool,

    /// Boot systemd with the broker's unit, and run no other test
    #[arg(long, conflicts_with_all = ["quick", "all", "only", "built"])]
    unit: bool,

    /// Time limit of a guest in minutes, all tests included
    #[arg(long, default_value_t = 240)]
    minutes: u64,

    /// Boot one kernel with a disk, and run commands on the disk for clients of this new socket
    #[arg(long, value_name = "SOCKET", requires = "disk", conflicts_with_all = ["quick", "all", "only", "built", "unit"])]
    serve: Option<PathBuf>,

    /// File with an ext4 file system that is the guest's disk
    #[arg(long, value_name = "FILE", requires = "serve")]
    disk: Option<PathBuf>,

    /// With the kernel's mitigations of what processors leak
    #[arg(long, requires = "serve")]
    mitigated: bool,

    /// Run a command in the guest that is served at this socket
    #[arg(long, value_name = "SOCKET", conflicts_with = "serve")]
    enter: Option<PathBuf>,

    /// Run by a service in the guest
    #[arg(long, hide = true)]
    unit_check: bool,

    /// Run by the guest itself
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

impl Options {
    fn set(&self) -> Set {
        match (self.quick, self.all || !self.only.is_empty()) {
            (true, _) => Set::Quick,
            (false, true) => Set::All,
            (false, false) => Set::Truth,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let succeeded = |is_good| match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    let done = match (&options.inside, &options.enter) {
        _ if options.unit_check => unit::check().map(|()| ExitCode::SUCCESS),
        (Some(plan), _) => inside::run(plan).map(|()| ExitCode::SUCCESS),
        (None, Some(socket)) => commands::enter(socket, &options.kernels),
        (None, None) => run_guests(&options).map(succeeded),
    };
    match done {
        Ok(status) => status,
        Err(error) => {
            eprintln!("guests: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every guest booted and nothing failed in it.
fn run_guests(options: &Options) -> Result<bool> {
    let kernels = kernels::chosen(&options.kernels)?;
    let cache = options.cache.as_deref().context("--cache is needed")?;
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot make the directory {}", cache.display()))?;
    let cache = cache.canonicalize()?;
    boot::catch_signals();
    if let Some(socket) = &options.serve {
        serve(&kernels, &cache, socket, options)?;
        return Ok(true);
    }
    if options.unit {
        let plan = built::unit_plan()?;
        let reports: Vec<GuestReport> = kernels
            .into_iter()
            .map(|kernel| {
                // Short, and beside others.
                let clock = match kernel.counts_instructions {
                    true => Clock::Instructions,
                    false => Clock::Host,
                };
                run_guest(kernel, &cache, (&plan, clock), options)
            })
            .collect();
        return Ok(!boot::is_stopped() && reports.iter().all(GuestReport::passed));
    }
    let built = options.built.as_deref().context("--built is needed")?;
    let built = built::Built::read(built, &options.only, options.set())?;

    // Other work on the host may have taken time from tests that fail.
    let again = |kernel: &Kernel, report: &mut GuestReport, clock| {
        let failed = built.plan(kernel.name).only(&report.failed());
        if report.done && !failed.programs.is_empty() {
            report.correct(run_guest(kernel, &cache, (&failed, clock), options));
        }
    };
    let mut reports = run_all(&kernels, |kernel| {
        let plan = built.plan(kernel.name);
        let mut report = run_guest(kernel, &cache, (&plan, Clock::Host), options);
        if kernel.counts_instructions {
            again(kernel, &mut report, Clock::Instructions);
        }
        report
    });
    // These have only the host's clock, so they wait until no other guest runs.
    for (kernel, report) in kernels.iter().zip(&mut reports) {
        if !kernel.counts_instructions {
            again(kernel, report, Clock::Host);
        }
    }
    matrix::print(&reports, options.set());
    Ok(!boot::is_stopped() && reports.iter().all(GuestReport::is_good))
}

/// Boots a guest that takes commands.
fn serve(kernels: &[&Kernel], cache: &Path, socket: &Path, options: &Options) -> Result<()> {
    let [kernel] = kernels else {
        anyhow::bail!("--serve needs the name of one kernel");
    };
    let files = fetch::fetch(kernel, cache, options.refresh)?;
    let disk = options.disk.as_deref().context("--disk is needed")?;
    let disk = disk
        .canonicalize()
        .with_context(|| format!("no disk {}", disk.display()))?;
    let hardware = Hardware {
        disk: Some(&disk),
        mitigated: options.mitigated,
        ..Hardware::for_tests(Clock::Host)
    };
    let plan = Plan {
        takes_commands: true,
        ..Plan::default()
    };
    let guest = boot::boot(kernel, &files, &plan, &hardware)?;
    let end = Instant::now() + limit(options);
    commands::serve(guest, socket, end)
}

fn limit(options: &Options) -> Duration {
    Duration::from_secs(60 * options.minutes)
}

/// Runs as many guests at a time as there are processors, as each is emulated by one thread. The newest kernel, whose
/// tests take longest, is the first. Returns the reports in the kernels' order.
fn run_all(
    kernels: &[&'static Kernel],
    run: impl Fn(&'static Kernel) -> GuestReport + Sync,
) -> Vec<GuestReport> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(kernels.to_vec());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..processors.min(kernels.len()) {
            scope.spawn(|| loop {
                let Some(kernel) = left.lock().expect("no guest panics").pop() else {
                    return;
                };
                let report = run(kernel);
                done.lock().expect("no guest panics").push(report);
            });
        }
    });
    let mut reports = done.into_inner().expect("no guest panics");
    reports.sort_by_key(|report| kernels.iter().position(|kernel| kernel.name == report.name));
    reports
}

/// Runs one guest, from fetching its kernel to its last test. A failure is returned as a result.
fn run_guest(
    kernel: &Kernel,
    cache: &Path,
    (plan, clock): (&Plan, Clock),
    options: &Options,
) -> GuestReport {
    let mut report = GuestReport::new(kernel.name);
    let booted = fetch::fetch(kernel, cache, options.refresh).and_then(|files| {
        report.release = files.release.clone();
        eprintln!("{}: {} boots", kernel.name, files.release);
        let guest = boot::boot(kernel, &files, plan, &Hardware::for_tests(clock))?;
        boot::run(guest, limit(options), &mut report)
    });
    if let Err(error) = booted {
        eprintln!("{}: {error:#}", kernel.name);
        report.failure = Some(format!("{error:#}"));
    }
    report
}
