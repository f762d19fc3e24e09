// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the whole-system tests on other kernels: each is booted under QEMU's software emulation, on
//! this machine's own file system, read-only, so that the very programs built here run there.
//!
//! README.md beside this crate says how to use it and what is left out.

mod boot;
mod built;
mod fetch;
mod image;
mod inside;
mod kernels;
mod left_out;
mod matrix;
mod report;
mod unit;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use clap::Parser;

use crate::kernels::Kernel;
use crate::left_out::Set;
use crate::report::GuestReport;

/// Runs debox's tests on other kernels and prints a matrix: kernel by feature and test.
#[derive(Debug, Parser)]
struct Options {
    /// Kernels to boot: 6.1, 6.12, newest; all of them if none is named.
    kernels: Vec<String>,

    /// What `cargo test --no-run --message-format json` printed: where the test programs are.
    #[arg(long, required_unless_present_any = ["inside", "unit", "unit_check"])]
    built: Option<PathBuf>,

    /// Where kernels are kept between runs.
    #[arg(long, required_unless_present_any = ["inside", "unit_check"])]
    cache: Option<PathBuf>,

    /// Fetches the newest packages of the kernels again.
    #[arg(long)]
    refresh: bool,

    /// Runs only tests whose name contains one of these.
    #[arg(long)]
    only: Vec<String>,

    /// Runs one test of each kind.
    #[arg(long, conflicts_with = "all")]
    quick: bool,

    /// Runs the tests of what stands on top of the records, too.
    #[arg(long)]
    all: bool,

    /// Boots systemd with the broker's unit, and runs no other test.
    #[arg(long, conflicts_with_all = ["quick", "all", "only", "built"])]
    unit: bool,

    /// Minutes that a guest may take, all tests included: an hour on two processors that do nothing
    /// else.
    #[arg(long, default_value_t = 240)]
    minutes: u64,

    /// Ran by a service of the guest.
    #[arg(long, hide = true)]
    unit_check: bool,

    /// Ran by the guest itself.
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
    let done = match &options.inside {
        _ if options.unit_check => unit::check().map(|()| true),
        Some(plan) => inside::run(plan).map(|()| true),
        None => run_guests(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("guests: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when every guest booted and nothing failed in it.
fn run_guests(options: &Options) -> Result<bool> {
    let kernels = kernels::chosen(&options.kernels)?;
    let cache = options.cache.as_deref().context("--cache is needed")?;
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot make the directory {}", cache.display()))?;
    let cache = cache.canonicalize()?;
    boot::catch_signals();
    if options.unit {
        let plan = built::unit_plan()?;
        let reports: Vec<GuestReport> = kernels
            .into_iter()
            .map(|kernel| run_guest(kernel, &cache, &plan, options))
            .collect();
        return Ok(!boot::is_stopped() && reports.iter().all(GuestReport::passed));
    }
    let built = options.built.as_deref().context("--built is needed")?;
    let built = built::Built::read(built, &options.only, options.set())?;

    // All at once: each is emulated by one thread, and only those whose clock is their own share a
    // processor.
    let reports: Vec<GuestReport> = thread::scope(|scope| {
        let (cache, built) = (&cache, &built);
        let start = |kernel| {
            scope.spawn(move || run_guest(kernel, cache, &built.plan(kernel.name), options))
        };
        let guests: Vec<_> = kernels.into_iter().map(start).collect();
        let ended = guests.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|report| report.expect("no guest panics"))
            .collect()
    });
    matrix::print(&reports, options.set());
    Ok(!boot::is_stopped() && reports.iter().all(GuestReport::is_good))
}

/// One guest from fetching its kernel to its last test. That it fails is a result like others.
fn run_guest(
    kernel: &Kernel,
    cache: &std::path::Path,
    plan: &inside::Plan,
    options: &Options,
) -> GuestReport {
    let mut report = GuestReport::new(kernel.name);
    let booted = fetch::fetch(kernel, cache, options.refresh).and_then(|files| {
        report.release = files.release.clone();
        eprintln!("{}: {} boots", kernel.name, files.release);
        let limit = Duration::from_secs(60 * options.minutes);
        boot::run(kernel, &files, plan, limit, &mut report)
    });
    if let Err(error) = booted {
        eprintln!("{}: {error:#}", kernel.name);
        report.failure = Some(format!("{error:#}"));
    }
    report
}
