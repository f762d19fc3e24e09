//! The library's own work on a thread. It has no records, and scopes leave it out.
//!
//! A scope consists of two readings of the thread's totals ([`super::scope`]). What the library does in between
//! is measured by two further readings and accumulated here. Every reading subtracts the accumulated work, so
//! that a scope around such work does not contain it.

use std::cell::Cell;

use super::reading::{all_faults, Reading};
use super::{slot, slot_fields, thread_state};

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

/// Runs work of the library, whose calls have no records and do not count in scopes. Not for signal handlers.
pub(super) fn left_out<T>(work: impl FnOnce() -> T) -> T {
    let Some(own) = slot::own() else {
        return work();
    };
    // Lets scopes find it without the thread local, which a signal handler must not access.
    thread_state::of_this_thread()
        .own_work
        .set(DONE.with(|done| done.as_ptr() as usize));
    let was_paused = slot_fields::set_paused(own, true);
    let begin = Reading::take(own);
    let faults_before = all_faults();
    let result = work();
    let faults = all_faults();
    // The slot may be a different one, if the session ended meanwhile.
    let end = (slot::own() == Some(own)).then(|| Reading::take(own));
    slot_fields::set_paused(own, was_paused);
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

/// The library's work on the calling thread in the life that the reading is of. Safe in a signal handler.
fn done_in(life: &Reading) -> Done {
    let done = thread_state::of_this_thread().own_work.get() as *const Done;
    if done.is_null() {
        return Done::default();
    }
    // SAFETY: it belongs to the thread and lives as long; only the thread writes it, and any bytes are valid
    // integers.
    let done = unsafe { done.read_volatile() };
    if done.life.is_of_same_life(life) {
        done
    } else {
        Done::default()
    }
}

/// Subtracts the library's own work from a reading.
pub(super) fn taken_off(reading: Reading) -> Reading {
    let done = done_in(&reading);
    reading
        .without(&done.life)
        .without_calls(thread_state::of_this_thread().checks.get())
}

/// Page faults as `getrusage` counts them, without those of the library's own work.
pub(super) fn faults_taken_off(faults: (u64, u64), reading: &Reading) -> (u64, u64) {
    let done = done_in(reading).faults;
    (
        faults.0.saturating_sub(done.0),
        faults.1.saturating_sub(done.1),
    )
}
