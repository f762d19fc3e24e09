//! Detects from the slots whether a session of the process's own still measures.
//!
//! The session ends when its descriptors are closed, which the program may do unknowingly (`closefrom(3)`):
//! then nothing is written any more, and the slots become stale. So if a record or a total is suspicious, the
//! thread makes a call of the library's own and checks whether the kernel has seen it. That is rare: a record
//! is suspicious if its call closed one of the session's descriptors, or if it is old and was read before; a
//! total is suspicious if nothing has happened on the thread for a while.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::record::Slot;
use crate::signals::Blocked;

use super::{memory, slot_fields, thread_state, user_tap};

/// A scope checks if the kernel's last stamp for the thread is older than this.
pub(super) const SCOPE_NS: u64 = 10_000_000;
/// The same for records, which are read without a call except for one check per this time.
pub(super) const RECORD_NS: u64 = 1_000_000_000;

/// More times than the kernel skips the probes in a row (docs/decisions/probes-hold-the-cpu.md).
const TRIES: u32 = 3;

/// Whether what a thread reads is current.
pub(super) enum Belief {
    AtOnce,
    /// It was checked with a call.
    Checked,
    None,
}

/// Whether there is a session of the process's own to watch.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// Whether the session has the kernel tap, not the user tap.
static HAS_KERNEL_TAP: AtomicBool = AtomicBool::new(true);
/// The lowest and the highest of its descriptors.
static LOWEST: AtomicI32 = AtomicI32::new(0);
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// Whether the last session was lost and there has been none since.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Starts watching a session that has begun. The caller holds the lock.
pub(super) fn watch((lowest, highest): (i32, i32), has_kernel_tap: bool) {
    LOWEST.store(lowest, Ordering::Relaxed);
    HIGHEST.store(highest, Ordering::Relaxed);
    HAS_KERNEL_TAP.store(has_kernel_tap, Ordering::Relaxed);
    IS_WATCHED.store(true, Ordering::Release);
}

/// Notes that there is no session to watch, nor a lost one. The caller holds the lock.
pub(super) fn forget() {
    IS_WATCHED.store(false, Ordering::Relaxed);
    IS_LOST.store(false, Ordering::Relaxed);
}

/// Whether the program has closed the session's descriptors and has not enabled DeBox again.
pub(super) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// Stops all reading and marks the session as lost. The caller holds the lock.
pub(super) fn lose() {
    memory::unpublish();
    user_tap::end();
    IS_WATCHED.store(false, Ordering::Relaxed);
    IS_LOST.store(true, Ordering::Relaxed);
}

/// Whether the calling thread's last record is current. Safe in signal handlers.
#[inline]
pub(super) fn may_believe_records(own: *mut Slot) -> bool {
    if !IS_WATCHED.load(Ordering::Acquire) {
        return true;
    }
    let completed = slot_fields::completed(own);
    let is_new = thread_state::of_this_thread().seen.replace(completed) != completed;
    let is_suspicious = match is_new {
        true => slot_fields::newest(own).is_some_and(|(call, args)| closes_ours(call, args)),
        false => age_ns(own) > RECORD_NS,
    };
    !is_suspicious || is_there(own)
}

/// Whether the totals of the calling thread are current. They were last written `open_ns` ago. Safe in signal
/// handlers.
#[inline]
pub(super) fn believe_totals(own: *mut Slot, open_ns: u64) -> Belief {
    if !IS_WATCHED.load(Ordering::Acquire) {
        return Belief::AtOnce;
    }
    let closed = || slot_fields::newest(own).is_some_and(|(call, args)| closes_ours(call, args));
    if open_ns <= SCOPE_NS && !closed() {
        return Belief::AtOnce;
    }
    match is_there(own) {
        true => Belief::Checked,
        false => Belief::None,
    }
}

/// The time since the kernel's last stamp, to some milliseconds, by the clock that is cheapest to read: a
/// record may be read in every iteration of a loop.
fn age_ns(own: *mut Slot) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    now_ns.saturating_sub(slot_fields::stamp_ns(own))
}

/// Whether the call closes or replaces one of the session's descriptors.
fn closes_ours(call: i64, args: [u64; 3]) -> bool {
    let lowest = LOWEST.load(Ordering::Relaxed);
    let highest = HIGHEST.load(Ordering::Relaxed);
    let is_ours = |fd: u64| (lowest..=highest).contains(&(fd as u32 as i32));
    match call {
        libc::SYS_close => is_ours(args[0]),
        libc::SYS_dup2 | libc::SYS_dup3 => is_ours(args[1]),
        libc::SYS_close_range => {
            let (first, last) = (args[0] as u32, args[1] as u32);
            i64::from(first) <= i64::from(highest) && i64::from(last) >= i64::from(lowest)
        }
        _ => false,
    }
}

#[cold]
fn is_there(own: *mut Slot) -> bool {
    let generation = memory::generation();
    // SAFETY: errno of this thread is always there.
    let errno = unsafe { *libc::__errno_location() };
    let is_there = match HAS_KERNEL_TAP.load(Ordering::Relaxed) {
        true => (0..TRIES).any(|_| slot_fields::sees_a_call(own)),
        // Without the kernel tap, the kernel only sees the thread leave its CPU.
        false => super::state::try_state().is_none_or(|_state| memory::has_map()),
    };
    if !is_there {
        // A signal handler that leaves by a jump would leave the lock taken.
        let _blocked = Blocked::all();
        if let Some(_state) = super::state::try_state() {
            if memory::generation() == generation {
                lose();
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_close_the_sessions_descriptors_are_suspicious() {
        LOWEST.store(10, Ordering::Relaxed);
        HIGHEST.store(90, Ordering::Relaxed);
        let closes = |call, args| closes_ours(call, args);
        assert!(closes(libc::SYS_close, [10, 0, 0]) && closes(libc::SYS_close, [90, 0, 0]));
        assert!(!closes(libc::SYS_close, [9, 0, 0]) && !closes(libc::SYS_close, [91, 0, 0]));
        assert!(closes(libc::SYS_close_range, [3, u64::from(u32::MAX), 0]));
        assert!(!closes(libc::SYS_close_range, [91, u64::from(u32::MAX), 0]));
        assert!(!closes(libc::SYS_close_range, [3, 9, 0]));
        assert!(closes(libc::SYS_dup2, [1, 50, 0]) && !closes(libc::SYS_dup2, [50, 1, 0]));
        assert!(!closes(libc::SYS_read, [50, 0, 0]));
        HIGHEST.store(-1, Ordering::Relaxed);
        assert!(!closes(libc::SYS_close_range, [3, u64::from(u32::MAX), 0]));
    }
}
