//! `debox attach`: monitors processes that are already running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use debox::{Monitor, Options, Outcome};

use crate::following::Following;
use crate::options::{Attach, TapName};
use crate::output::{quiet_if_closed, Output};

const POLL: Duration = Duration::from_millis(20);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Makes SIGINT and SIGTERM stop the monitoring; the report is still printed.
pub fn stop_at_signals() {
    let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only stores to an atomic.
    unsafe {
        libc::signal(libc::SIGINT, handler);
        libc::signal(libc::SIGTERM, handler);
    }
}

pub fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

pub fn attach(arguments: Attach) -> Result<u8> {
    if arguments.measure.tap == TapName::User {
        bail!(
            "the user tap must be in the program from its start (debox run --tap user); a running \
             process can be seen with the kernel tap only"
        );
    }
    let mut following = Following::find(&arguments.targets, arguments.only)?;
    let output = Output::prepare(&arguments.measure)?;
    let options = Options {
        adopts_sleeps: true,
        one_process: arguments.only,
        ..arguments.measure.session_options()
    };
    let mut session = Monitor::open(options.clone())?;
    stop_at_signals();
    following.say_cost(&options)?;
    following.begin(&mut session)?;

    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    while !is_stopped()
        && deadline.is_none_or(|deadline| Instant::now() < deadline)
        && following.goes_on(&mut session)?
    {
        following.wait(&mut session, POLL)?;
        session.poll(Duration::ZERO)?;
    }
    following.say_notes();
    let report = session.finish(Outcome::default())?;
    output.write(&report).or_else(quiet_if_closed)?;
    Ok(0)
}
