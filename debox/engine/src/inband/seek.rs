// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search of a thread for the next broker.

use std::sync::atomic::Ordering;

use crate::clock::monotonic_ns;
use crate::signals::Blocked;

use super::brokered::{IS_BROKERED, NEXT_NS, RETRY_NS};
use super::state::{try_state, Source};

/// If the writer of the records has gone, takes a step towards the next broker. Returns whether there are
/// records now. Safe in signal handlers; preserves `errno`.
#[cold]
pub(super) fn seek() -> bool {
    if !IS_BROKERED.load(Ordering::Acquire) {
        return false;
    }
    // SAFETY: errno of this thread is always there.
    let errno = unsafe { *libc::__errno_location() };
    let found = seek_now();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    found
}

fn seek_now() -> bool {
    let now = monotonic_ns();
    if now < NEXT_NS.load(Ordering::Relaxed) {
        return false;
    }
    // A signal handler that leaves by a jump would leave the lock taken.
    let _blocked = Blocked::all();
    let Some(mut state) = try_state() else {
        return false;
    };
    match &mut state.source {
        Source::Brokered(brokered) if brokered.is_own() => brokered.step(now),
        _ => {
            NEXT_NS.store(now + RETRY_NS, Ordering::Relaxed);
            false
        }
    }
}
