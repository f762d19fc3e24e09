// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a slot: reading and writing them, and of the calling thread's slot as far as the thread has found it.
//!
//! The kernel writes a thread's slot while the thread is in a call, and the slots of other threads at any time, so
//! slots are only read and written with volatile accesses through pointers.

use std::ptr;
use std::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering};

use crate::record::{Record, Slot, HISTORY_MAX};
use crate::tables::types;

use super::{memory, thread_state};

/// The most calls of one thread that are left to it to decide (debox/probe/shared.h).
pub(super) const UNDECIDED_MAX: usize = 4;

/// First argument of the `gettid` that looks for the slot; it identifies that call's record. The kernel
/// ignores arguments that a call does not have.
pub(super) const LOOK_UP: u64 = 0x6465_626f_785f_6f77;

/// Reads a field that the kernel may have changed since the last look.
macro_rules! read {
    ($pointer:expr, $($field:tt)+) => {
        // SAFETY: slots are never unmapped (see `memory`), and any bytes are valid integers.
        unsafe { ptr::read_volatile(&raw const (*$pointer).$($field)+) }
    };
}
pub(super) use read;

/// The calling thread's slot, if the thread has looked for it before.
pub(super) fn known() -> Option<*mut Slot> {
    let state = thread_state::of_this_thread();
    let slot = state.slot.get() as *mut Slot;
    (state.generation.get() == memory::generation() && !slot.is_null()).then_some(slot)
}

/// Whether the broker has dropped this thread's process.
pub(super) fn is_gone() -> bool {
    let state = thread_state::of_this_thread();
    let slot = state.slot.get() as *const Slot;
    state.generation.get() == memory::generation() && !slot.is_null() && read!(slot, gone) != 0
}

/// Drops triggers that have fired and calls that are still to be decided.
pub(super) fn forget_triggers(slot: *mut Slot) {
    // SAFETY: slots are never unmapped, and the words are aligned.
    unsafe {
        AtomicU64::from_ptr(&raw mut (*slot).triggers_fired).store(0, Ordering::Relaxed);
        for index in 0..UNDECIDED_MAX {
            let undecided = undecided_at(slot, index);
            AtomicU64::from_ptr(&raw mut (*undecided).number).store(0, Ordering::Relaxed);
        }
    }
}

/// One of the calls that are left to the thread to decide; the index is below [`UNDECIDED_MAX`].
pub(super) fn undecided_at(slot: *mut Slot, index: usize) -> *mut types::undecided_call {
    // SAFETY: the index is inside the array, and the slot is mapped.
    unsafe {
        let calls = (&raw mut (*slot).triggers_undecided).cast::<types::undecided_call>();
        calls.add(index)
    }
}

/// How many records have been written to a slot.
#[inline]
pub(super) fn completed(slot: *const Slot) -> u64 {
    read!(slot, completed)
}

/// The kernel's last stamp for a slot's thread.
pub(super) fn stamp_ns(slot: *const Slot) -> u64 {
    read!(slot, totals.stamp_ns)
}

/// The call of the newest record, and its arguments.
#[inline]
pub(super) fn newest(slot: *const Slot) -> Option<(i64, [u64; 3])> {
    let last = completed(slot).checked_sub(1)?;
    let record = entry(slot, last);
    Some((i64::from(read!(record, call)), read!(record, args)))
}

/// Makes a call without a record and returns whether the kernel has seen it.
pub(super) fn sees_a_call(own: *mut Slot) -> bool {
    let before = stamp_ns(own);
    let was_paused = set_paused(own, true);
    // SAFETY: gettid has no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_gettid, LOOK_UP) };
    set_paused(own, was_paused);
    let is_seen = stamp_ns(own) != before;
    if is_seen {
        let checks = &thread_state::of_this_thread().checks;
        checks.set(checks.get() + 1);
    }
    is_seen
}

/// The address of the `ordinal`th record of a slot, counted from 0 over all its records.
#[inline]
pub(super) fn entry(slot: *const Slot, ordinal: u64) -> *const Record {
    let index = ordinal as usize % HISTORY_MAX;
    // SAFETY: the index is inside the array, and the slot is mapped.
    unsafe { (&raw const (*slot).history).cast::<Record>().add(index) }
}

/// A consistent copy of a record, which was not written to meanwhile.
pub(super) fn copy_whole(record: *const Record) -> Option<Record> {
    const ATTEMPTS: usize = 3;
    // SAFETY: the sequence is an aligned word of a mapped record, changed by others at any time.
    let sequence = unsafe { AtomicU32::from_ptr((&raw const (*record).sequence).cast_mut()) };
    for _ in 0..ATTEMPTS {
        let first = sequence.load(Ordering::Acquire);
        if first & 1 != 0 {
            continue;
        }
        // SAFETY: as in `read!`.
        let copy = unsafe { ptr::read_volatile(record) };
        fence(Ordering::Acquire);
        if sequence.load(Ordering::Relaxed) == first {
            return Some(copy);
        }
    }
    None
}

/// Sets whether records are paused; returns the previous value.
pub(super) fn set_paused(slot: *mut Slot, paused: bool) -> bool {
    let before = read!(slot, paused);
    // SAFETY: slots are never unmapped; only their own thread writes this word.
    unsafe { ptr::write_volatile(&raw mut (*slot).paused, u32::from(paused)) };
    compiler_fence(Ordering::SeqCst);
    before != 0
}

pub(super) fn set_limits(slot: *mut Slot, max_sleeps: u32, max_trace: u32) {
    // SAFETY: slots are never unmapped; only their own thread writes these state.
    unsafe {
        ptr::write_volatile(&raw mut (*slot).max_sleeps, max_sleeps);
        ptr::write_volatile(&raw mut (*slot).max_trace, max_trace);
    }
}
