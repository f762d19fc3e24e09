//! The most reliable check: opens whole sessions, and lets the kernel tap measure this process
//! itself.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use super::finding::{Finding, Standing};
use crate::kernel;
use crate::options::{Detail, Options, Tap};
use crate::report::{Report, WakerKind};
use crate::session::Session;
use crate::skeleton::DeboxSkelBuilder;
use crate::Outcome;

/// What the trial does: so many calls, and one sleep, long enough that a slow machine is asleep
/// before the timer ends.
const CALLS: u64 = 100;
const SLEEP: Duration = Duration::from_millis(10);

const VERBOSE: &str = "DEBOX_VERBOSE=1 debox doctor shows what the kernel said";

/// The findings, and the kind of waker that the trial saw, if any. `may_try` has the reason if
/// there is to be no trial.
pub(super) fn examine(may_try: Result<(), &str>) -> (Vec<Finding>, Option<WakerKind>) {
    if let Err(not_tried) = may_try {
        let taps = ["kernel tap", "user tap"].map(|tap| Finding::unchecked(tap, not_tried));
        return (taps.to_vec(), None);
    }
    let everything = Detail {
        sleeps: true,
        callsites: true,
        irq: true,
        io: true,
        cpu: true,
        samples: true,
    };
    let (mut findings, waker) = match Trial::run(everything) {
        Ok(trial) => (vec![trial.finding()], trial.waker()),
        Err(error) => (explain_failure(&error), None),
    };
    let kernel_tap_works = findings[0].standing == Standing::Met;
    findings.push(user_tap(kernel_tap_works));
    (findings, waker)
}

/// A session of the kernel tap over this process.
struct Trial {
    opened_in: Duration,
    tables_bytes: u64,
    report: Report,
}

impl Trial {
    fn run(detail: Detail) -> Result<Trial> {
        let began = Instant::now();
        let mut session = Session::open(Options {
            detail,
            adopts_sleeps: true, // as `debox attach` does
            ..Options::default()
        })?;
        session.enrol(std::process::id(), false)?;
        let opened_in = began.elapsed();
        let tables_bytes = kernel::memory_of_own_tables();
        for _ in 0..CALLS {
            // SAFETY: takes nothing and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        sleep();
        let report = session.finish(Outcome::default())?;
        Ok(Trial {
            opened_in,
            tables_bytes,
            report,
        })
    }

    fn finding(&self) -> Finding {
        let need = "kernel tap";
        if let Err(error) = self.check() {
            return Finding::prevents(need, format!("loads, but {error}"))
                .cost("reports would not be true")
                .remedy("please report this as a bug, with the kernel's version");
        }
        let found = format!(
            "a trial with all details was seen in full; it opened in {} ms, its tables take {} MiB",
            self.opened_in.as_millis(),
            self.tables_bytes.div_ceil(1 << 20),
        );
        Finding::met(need, found)
    }

    fn check(&self) -> Result<()> {
        let call = |name: &str| self.report.syscalls.iter().find(|call| call.name == name);
        let seen = call("getppid").map_or(0, |call| call.calls);
        ensure!(seen == CALLS, "{seen} of {CALLS} calls were seen");
        // The timer is set inside the call: beforehand, only a lower bound of the call's whole time
        // is known.
        let took = call("clock_nanosleep").map_or(0, |call| call.wall_ns);
        ensure!(
            u128::from(took) >= SLEEP.as_nanos(),
            "a call that sleeps for {SLEEP:?} was seen to take {:?}",
            Duration::from_nanos(took)
        );
        let has_site = self
            .report
            .sleeps
            .iter()
            .any(|sleep| sleep.syscall == "clock_nanosleep");
        ensure!(has_site, "a sleep was seen without its site");
        Ok(())
    }

    /// What ended the trial's sleep.
    fn waker(&self) -> Option<WakerKind> {
        let sleep = self
            .report
            .sleeps
            .iter()
            .find(|sleep| sleep.syscall == "clock_nanosleep")?;
        Some(sleep.wakers.first()?.kind)
    }
}

fn sleep() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: SLEEP.subsec_nanos().into(),
    };
    // SAFETY: `time` is a valid timespec; the time that remains after a signal is not requested.
    // Called by number, because the library might choose another call.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            0,
            &time,
            0usize,
        );
    }
}

/// Findings for a failed trial: whether it works with fewer details, and which probes are refused.
fn explain_failure(error: &anyhow::Error) -> Vec<Finding> {
    let mut findings = vec![if Trial::run(Detail::default()).is_err() {
        Finding::prevents("kernel tap", reason(error))
            .cost("nothing can be measured")
            .remedy(VERBOSE)
    } else {
        let lacking = details_refused().join(", ");
        Finding::limits("kernel tap", reason(error))
            .cost(format!("does not work with --detail {lacking}"))
            .remedy(format!(
                "use --detail basic or another that works; {VERBOSE}"
            ))
    }];
    for (probe, error) in probes_refused() {
        findings.push(
            Finding::limits(&format!("probe {probe}"), error)
                .cost("what needs it fails, see the taps above")
                .remedy(VERBOSE),
        );
    }
    findings
}

/// debox's error message without its advice to run the doctor.
fn reason(error: &anyhow::Error) -> String {
    format!("{error:#}").replace("; `debox doctor` says what it allows", "")
}

fn details_refused() -> Vec<&'static str> {
    let none = Detail::default();
    let mut sleeps = none;
    sleeps.sleeps = true;
    let mut callsites = sleeps;
    callsites.callsites = true;
    let mut irq = none;
    irq.irq = true;
    let mut io = none;
    io.io = true;
    let mut cpu = none;
    cpu.cpu = true;
    let mut samples = none;
    samples.samples = true;
    [
        ("sleeps", sleeps),
        ("callsites", callsites),
        ("irq", irq),
        ("io", io),
        ("cpu", cpu),
        ("samples", samples),
    ]
    .iter()
    .filter(|(_, detail)| Trial::run(*detail).is_err())
    .map(|(name, _)| *name)
    .collect()
}

/// The probes that the kernel does not accept. Each is loaded and attached by itself.
fn probes_refused() -> Vec<(String, String)> {
    let names = || -> Result<Vec<String>> {
        let mut object = MaybeUninit::uninit();
        let open = DeboxSkelBuilder::default().open(&mut object)?;
        let names = open.open_object().progs();
        Ok(names
            .map(|prog| prog.name().to_string_lossy().into_owned())
            .collect())
    };
    let try_alone = |name: &str| match load_alone(name) {
        Ok(()) => None,
        Err(error) => Some((name.to_string(), format!("{error:#}"))),
    };
    names()
        .unwrap_or_default()
        .iter()
        .filter_map(|name| try_alone(name))
        .collect()
}

/// The program that takes samples.
const ON_CLOCK: &str = "on_clock";

fn load_alone(name: &str) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut open = DeboxSkelBuilder::default().open(&mut object)?;
    for mut prog in open.open_object_mut().progs_mut() {
        let is_wanted = prog.name() == name;
        prog.set_autoload(is_wanted);
    }
    let skel = open.load().context("it does not load")?;
    if name == ON_CLOCK {
        return Ok(()); // it is attached to an event that a session opens
    }
    let prog = skel
        .object()
        .progs_mut()
        .find(|prog| prog.name() == name)
        .context("no such")?;
    prog.attach().map(drop).context("it does not attach")
}

fn user_tap(kernel_tap_works: bool) -> Finding {
    let need = "user tap";
    let detail = Detail {
        sleeps: true,
        ..Detail::default()
    };
    let options = Options {
        tap: Tap::User,
        detail,
        max_threads: 64,
        max_records: 64,
        ..Options::default()
    };
    match Session::open(options) {
        Ok(_) => Finding::met(need, "its probes load, and the processor's clock is steady"),
        Err(error) => Finding::limits(need, reason(&error))
            .cost("--tap user does not work; --tap kernel costs each call more")
            .remedy(if kernel_tap_works {
                "use --tap kernel"
            } else {
                VERBOSE
            }),
    }
}
