//! `debox attach`: a process that already runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use debox::{Options, Outcome, Session};

use crate::options::{Attach, TapName};
use crate::output::{quiet_if_closed, Output};

const POLL: Duration = Duration::from_millis(20);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

pub fn attach(arguments: Attach) -> Result<u8> {
    if arguments.measure.tap == TapName::User {
        bail!(
            "the user tap must be in the program from its start (debox run --tap user); a running \
             process can be seen with the kernel tap only"
        );
    }
    debox::kernel::require_process(arguments.pid)?;
    let output = Output::prepare(&arguments.measure)?;
    let mut session = Session::open(Options {
        adopts_sleeps: true,
        ..arguments.measure.session_options()
    })?;
    let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only stores to an atomic.
    unsafe {
        libc::signal(libc::SIGINT, handler);
        libc::signal(libc::SIGTERM, handler);
    }
    session.enrol(arguments.pid, false)?;

    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    while !STOP.load(Ordering::Relaxed)
        && deadline.is_none_or(|deadline| Instant::now() < deadline)
        && session.threads_alive(arguments.pid)? > 0
    {
        session.poll(POLL)?;
    }
    let report = session.finish(Outcome::default())?;
    output.write(&report).or_else(quiet_if_closed)?;
    Ok(0)
}
