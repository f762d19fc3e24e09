//! `debox run`: monitors a command from its first instruction to its last.

use std::ffi::OsString;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use debox::{Monitor, Outcome};

use crate::attach::{is_stopped, stop_at_signals};
use crate::command::{self, Command};
use crate::options::{Run, TapName};
use crate::output::Output;
use crate::preload::Preload;
use crate::tappable;

/// The environment variable that tells programs under a session which one it is.
pub const SESSION_VARIABLE: &str = "DEBOX_SESSION";

/// Short enough for the ring buffer to hold the thread ends in between.
const POLL: Duration = Duration::from_millis(20);

/// A thread's last context switch comes shortly after its parent can learn that it has ended.
pub const LAST_SWITCH: Duration = Duration::from_millis(500);

pub fn run(arguments: Run) -> Result<u8> {
    refuse_nested()?;
    let output = Output::prepare(&arguments.measure)?;
    let mut environment: Vec<(&str, OsString)> =
        vec![(SESSION_VARIABLE, std::process::id().to_string().into())];
    let program = command::find(&arguments.command[0])?;
    if arguments.measure.tap == TapName::User {
        tappable::require_tappable(&program, tappable::USE_KERNEL_TAP)?;
    }
    let mut session = Monitor::open(arguments.measure.session_options())?;
    let preload = session
        .tap_address()
        .map(|_| Preload::install())
        .transpose()?;
    if let (Some(preload), Some(address)) = (&preload, session.tap_address()) {
        environment.extend(preload.environment(address));
    }
    let mut command = Command::prepare(&program, &arguments.command, environment)?;
    pass_signals_to(command.pid);
    session.enrol(command.pid as u32)?;
    command.release()?;

    let status = loop {
        session.poll(POLL)?;
        if let Some(status) = command.try_wait() {
            break status;
        }
    };
    let deadline = Instant::now() + LAST_SWITCH;
    while session.threads_alive(command.pid as u32)? > 0 && Instant::now() < deadline {
        session.poll(Duration::from_millis(1))?;
    }
    if arguments.follow {
        stop_at_signals();
        while !is_stopped() && session.has_threads()? {
            session.poll(POLL)?;
        }
    }

    let report = session.finish(Outcome {
        command: arguments
            .command
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
        exit_status: Some(status),
    })?;
    output.write_after_command(&report)?;
    Ok(status as u8)
}

/// Refuses a session inside a session: it would measure the outer one.
pub fn refuse_nested() -> Result<()> {
    let Some(outer) = std::env::var_os(SESSION_VARIABLE) else {
        return Ok(());
    };
    bail!(
        "already running under debox (process {}): a session inside a session would measure \
         the other one; start one `debox run` around the whole",
        outer.to_string_lossy()
    );
}

static COMMAND: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: kill is async-signal-safe.
    unsafe { libc::kill(COMMAND.load(Ordering::Relaxed), signal) };
}

/// As in `time`: signals from the terminal reach the command directly, and debox stays alive to
/// report. Signals sent to debox alone are passed on to the command.
pub fn pass_signals_to(pid: libc::pid_t) {
    COMMAND.store(pid, Ordering::Relaxed);
    let handler = pass_on as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing but kill.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, handler);
        libc::signal(libc::SIGHUP, handler);
    }
}
