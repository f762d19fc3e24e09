//! Handles Ctrl-C and other terminating signals: generator processes end and keep their rows, and latlab
//! undoes what it has started and confined before it exits.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// Signals that end latlab; SIGHUP comes when its terminal is closed.
pub const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// A user who sends this many signals does not want to wait; the next run cleans up.
const IMPATIENT: u32 = 3;

/// Processes to which terminating signals are forwarded.
static FORWARD_TO: [AtomicI32; 256] = [const { AtomicI32::new(0) }; 256];
static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn caught(_signal: libc::c_int) {
    if CAUGHT.fetch_add(1, Ordering::Relaxed) + 1 >= IMPATIENT {
        // SAFETY: ends the process, which may be done in a signal handler.
        unsafe { libc::_exit(130) };
    }
    for pid in &FORWARD_TO {
        match pid.load(Ordering::Relaxed) {
            0 => {}
            // SAFETY: may be called in a signal handler; no memory is passed.
            pid => drop(unsafe { libc::kill(pid, libc::SIGTERM) }),
        }
    }
}

/// From now on these signals do not end the process: [`interrupted`] reports them.
pub fn catch() {
    let handler: extern "C" fn(libc::c_int) = caught;
    for signal in ENDING {
        // SAFETY: the handler does what handlers may do.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Processes that are terminated together with this one.
pub fn forward_to(pids: &[u32]) {
    for (index, place) in FORWARD_TO.iter().enumerate() {
        let pid = pids.get(index).and_then(|pid| i32::try_from(*pid).ok());
        place.store(pid.unwrap_or(0), Ordering::Relaxed);
    }
    // A signal may have come before.
    if CAUGHT.load(Ordering::Relaxed) > 0 {
        for pid in pids {
            sys::signal(*pid, libc::SIGTERM);
        }
    }
}

/// A signal has ended latlab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Returns an error if a terminating signal has come.
pub fn check() -> Result<(), Interrupted> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Interrupted),
    }
}

/// `None` if it was interrupted.
pub fn unless_interrupted<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Err(error) if error.downcast_ref::<Interrupted>().is_some() => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_interruption_is_told_from_an_error() {
        let ended: anyhow::Result<()> = Err(Interrupted.into());
        let ended = ended.context("with workers=4");
        assert_eq!(unless_interrupted(ended).unwrap(), None);
        assert!(unless_interrupted::<()>(Err(anyhow::anyhow!("interrupted"))).is_err());
        assert_eq!(unless_interrupted(Ok(1)).unwrap(), Some(1));
    }
}
