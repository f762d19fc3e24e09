//! Ctrl-C and its like: generator processes end with their rows, and what latlab has started and confined
//! is undone before it ends itself.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// What ends latlab; SIGHUP is that of a terminal that was closed.
pub const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Whoever asks so often does not want to wait; the next run cleans up then.
const IMPATIENT: u32 = 3;

/// Processes that get the signals that end this one.
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

/// From now on these signals do not end the process by themselves: it asks [`interrupted`].
pub fn catch() {
    let handler: extern "C" fn(libc::c_int) = caught;
    for signal in ENDING {
        // SAFETY: the handler does what handlers may do.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Processes that are told to end when this one is.
pub fn forward_to(pids: &[u32]) {
    for (index, place) in FORWARD_TO.iter().enumerate() {
        let pid = pids.get(index).and_then(|pid| i32::try_from(*pid).ok());
        place.store(pid.unwrap_or(0), Ordering::Relaxed);
    }
    // One may have come before.
    if CAUGHT.load(Ordering::Relaxed) > 0 {
        for pid in pids {
            sys::signal(*pid, libc::SIGTERM);
        }
    }
}

/// Somebody ended latlab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// An error if latlab has been told to end.
pub fn check() -> Result<(), Interrupted> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Interrupted),
    }
}

/// None if it was ended.
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
