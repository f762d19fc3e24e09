//! The library's own work on a thread, which has no records and which scopes leave out.
//!
//! A scope is made of two readings of the thread's life ([`super::scope`]). What the library does in between is
//! measured by two readings of its own and kept here; every reading has that taken off, so that it is the same
//! in both of a scope around it.

use std::cell::Cell;

use super::scope::{all_faults, Reading};
use super::{slot, words};

/// What the library has done on a thread, as differences of readings.
#[derive(Clone, Copy, Default)]
struct Done {
    life: Reading,
    /// As `getrusage` counts page faults.
    faults: (u64, u64),
}

thread_local! {
    /// Neither allocated nor dropped: it lives as long as the thread.
    static DONE: Cell<Done> = const {
        Cell::new(Done { life: Reading::ZERO, faults: (0, 0) })
    };
}

/// Does work of the library's, whose calls have no records and count in no scope. Not for signal handlers.
pub(super) fn left_out<T>(work: impl FnOnce() -> T) -> T {
    let Some(own) = slot::own() else {
        return work();
    };
    // Scopes find it without the thread local, of which a signal handler may not ask.
    words::words()
        .own_work
        .set(DONE.with(|done| done.as_ptr() as usize));
    let was_paused = slot::set_paused(own, true);
    let begin = Reading::take(own);
    let faults_before = all_faults();
    let result = work();
    let faults = all_faults();
    // The slot may be another one, if the session ended meanwhile.
    let end = (slot::own() == Some(own)).then(|| Reading::take(own));
    slot::set_paused(own, was_paused);
    if let (Some(begin), Some(Some(end))) = (begin, end) {
        let mut done = DONE.get();
        if !done.life.is_of_same_life(&end) {
            done = Done::default();
        }
        done.life.add(&begin, &end);
        done.faults.0 += faults.0.saturating_sub(faults_before.0);
        done.faults.1 += faults.1.saturating_sub(faults_before.1);
        DONE.set(done);
    }
    result
}

/// What the calling thread has done in the library in that life of its own. Safe in a signal handler.
fn done_in(life: &Reading) -> Done {
    let done = words::words().own_work.get() as *const Done;
    if done.is_null() {
        return Done::default();
    }
    // SAFETY: it is the thread's own and lives as long; only the thread writes it, and whole numbers.
    let done = unsafe { done.read_volatile() };
    if done.life.is_of_same_life(life) {
        done
    } else {
        Done::default()
    }
}

/// The reading without the library's own work.
pub(super) fn taken_off(reading: Reading) -> Reading {
    let done = done_in(&reading);
    reading
        .without(&done.life)
        .without_calls(words::words().checks.get())
}

/// Page faults as `getrusage` counts them, without those of the library's own work.
pub(super) fn faults_taken_off(faults: (u64, u64), reading: &Reading) -> (u64, u64) {
    let done = done_in(reading).faults;
    (
        faults.0.saturating_sub(done.0),
        faults.1.saturating_sub(done.1),
    )
}
