// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that end a run: the sample at work ends, and what is complete is kept.

use std::sync::atomic::{AtomicU32, Ordering};

const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// A user who sends this many signals does not want to wait.
const IMPATIENT: u32 = 3;
static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn caught(_signal: libc::c_int) {
    if CAUGHT.fetch_add(1, Ordering::Relaxed) + 1 >= IMPATIENT {
        // SAFETY: ends the process, which may be done in a signal handler.
        unsafe { libc::_exit(130) };
    }
}

/// From now on these signals do not end the process: [`interrupted`] reports them. Programs that are started do
/// not inherit this.
pub fn catch() {
    let handler: extern "C" fn(libc::c_int) = caught;
    for signal in ENDING {
        // SAFETY: the handler does what handlers may do.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

pub fn interrupted() -> bool {
    CAUGHT.load(Ordering::Relaxed) > 0
}
