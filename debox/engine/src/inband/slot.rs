//! A thread's slot: finding it, and the records in it. All of it is safe in a signal handler.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{compiler_fence, AtomicU64, Ordering};

use crate::record::{Budget, Record, Sleep, Slot, HISTORY_MAX, SLEEPS_MAX};
use crate::tables::types;

use super::seek::seek;
use super::slot_fields::{copy_whole, entry, known, read, undecided_at, LOOK_UP, UNDECIDED_MAX};
use super::state::try_state;
use super::{liveness, memory, presence, thread_state, user_tap};

/// The record of a thread's last call, in the memory that the kernel writes it to.
///
/// It is valid until the thread's eighth call after it ([`HISTORY_MAX`]), and not beyond
/// [`super::disable`]. Reading it later is safe, but returns another call's data, as [`Last::number`]
/// shows. [`Last::copy`] keeps it.
#[derive(Clone, Copy)]
pub struct Last {
    record: *const Record,
    // The record is the thread's own: it is not consistent for others.
    _not_send: PhantomData<*const ()>,
}

impl Last {
    /// The record's address, for C.
    pub fn as_ptr(self) -> *const Record {
        self.record
    }

    /// The whole record.
    pub fn copy(self) -> Record {
        // SAFETY: as in `read!`.
        unsafe { ptr::read_volatile(self.record) }
    }

    /// Ordinal of the call on this thread, from 1.
    pub fn number(self) -> u64 {
        read!(self.record, number)
    }

    /// The call number, such as `libc::SYS_read`.
    pub fn call(self) -> i64 {
        i64::from(read!(self.record, call))
    }

    /// As the kernel returned it: `-errno` on error.
    pub fn ret(self) -> i64 {
        read!(self.record, ret)
    }

    /// The first argument state.
    pub fn args(self) -> [u64; 3] {
        read!(self.record, args)
    }

    pub fn flags(self) -> u16 {
        read!(self.record, flags)
    }

    /// From entry to exit.
    pub fn wall_ns(self) -> u64 {
        read!(self.record, wall_ns)
    }

    /// Where the wall time went.
    pub fn budget(self) -> Budget {
        read!(self.record, budget)
    }

    pub fn faults_minor(self) -> u32 {
        read!(self.record, faults_minor)
    }

    pub fn faults_major(self) -> u32 {
        read!(self.record, faults_major)
    }

    /// [`crate::record::ABI_X86_64`] or [`crate::record::ABI_IA32`].
    pub fn abi(self) -> u16 {
        read!(self.record, abi)
    }

    /// One of the places where the call slept.
    pub fn sleep(self, index: usize) -> Option<Sleep> {
        let used = usize::from(self.sleeps_used()).min(SLEEPS_MAX);
        (index < used).then(|| read!(self.record, sleep_entries[index]))
    }

    /// How many trace entries [`super::trace`] will find.
    pub fn trace_used(self) -> u16 {
        read!(self.record, trace_used)
    }

    /// How many entries [`Record::sleeps`] of the copy will have.
    pub fn sleeps_used(self) -> u16 {
        read!(self.record, sleeps_used)
    }
}

/// Whether this process has enabled DeBox and the writer of its records, such as the broker, is still there. Safe in
/// signal handlers.
pub fn is_enabled() -> bool {
    let is_there = memory::generation() != 0 && presence::is_there();
    (is_there && known().is_none_or(liveness::may_believe_records)) || seek()
}

/// The calling thread's slot.
#[inline]
pub(super) fn own() -> Option<*mut Slot> {
    let generation = memory::generation();
    if generation == 0 || !presence::is_there() {
        return none_yet();
    }
    let state = thread_state::of_this_thread();
    if state.generation.get() != generation {
        look_up(generation);
        if state.generation.get() != generation {
            return None;
        }
    }
    let slot = state.slot.get() as *mut Slot;
    if slot.is_null() {
        return None;
    }
    if read!(slot, gone) != 0 {
        return none_yet();
    }
    Some(slot)
}

/// Nothing writes this thread's records now. Once a broker does so again, the first records are those of
/// the library's own search for it.
#[cold]
fn none_yet() -> Option<*mut Slot> {
    if seek() {
        hide_all();
    }
    None
}

/// Which triggers have fired for the calling thread since this was last asked: bits.
pub(super) fn take_fired() -> u64 {
    let Some(slot) = own() else {
        return 0;
    };
    // SAFETY: slots are never unmapped, and the word is aligned; the kernel writes it atomically.
    let word = unsafe { AtomicU64::from_ptr(&raw mut (*slot).triggers_fired) };
    word.swap(0, Ordering::AcqRel)
}

/// Takes the oldest of the calls that are left to the calling thread to decide, so that it is decided
/// only once. A handler of another trigger's signal may interrupt and take it first.
pub(super) fn take_undecided(slot: *mut Slot) -> Option<types::undecided_call> {
    loop {
        let open = |index| {
            let undecided = undecided_at(slot, index);
            let number = read!(undecided, number);
            (number != 0).then_some((number, undecided))
        };
        let oldest = (0..UNDECIDED_MAX).filter_map(open);
        let (number, undecided) = oldest.min_by_key(|(number, _)| *number)?;
        // SAFETY: as in `read!`.
        let copy = unsafe { ptr::read_volatile(undecided) };
        // SAFETY: the word is aligned; the kernel writes it only while the thread is in a call.
        let word = unsafe { AtomicU64::from_ptr(&raw mut (*undecided).number) };
        let taken = word.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() && number > floor() {
            return Some(copy);
        }
    }
}

/// The record of the calling thread's call of that number, if it is still there.
pub(super) fn numbered(slot: *const Slot, number: u64) -> Option<*const Record> {
    let completed = read!(slot, completed);
    let records = 1..=completed.min(HISTORY_MAX as u64);
    let mut records = records.map(|back| entry(slot, completed - back));
    records.find(|record| read!(*record, number) == number)
}

/// Finds the slot by the thread's id. A signal handler may interrupt between any two steps and do the
/// same. The generation is stored last, so that the values that it covers are there.
#[cold]
fn look_up(generation: u64) {
    // SAFETY: gettid has no arguments and touches no memory.
    let tid = unsafe { libc::syscall(libc::SYS_gettid, LOOK_UP) };
    let Ok(slot) = memory::find(tid as u32, try_state) else {
        return; // try again at the next look-up
    };
    let state = thread_state::of_this_thread();
    state.slot.set(slot.map_or(0, |slot| slot as usize));
    user_tap::take_slot(slot);
    state.floor.set(0);
    state.checks.set(0);
    compiler_fence(Ordering::SeqCst);
    state.generation.set(generation);
}

/// For the stamps: whether the thread has a slot in this generation.
#[no_mangle]
extern "C" fn debox_inband_look_up(_generation: u64) -> i32 {
    i32::from(own().is_some())
}

/// Calls of this thread up to this number are not shown.
pub(super) fn floor() -> u64 {
    thread_state::of_this_thread().floor.get()
}

/// Hides the calls that this thread has made so far.
pub(super) fn hide_all() {
    let Some(slot) = own() else { return };
    let completed = read!(slot, completed);
    if completed > 0 {
        thread_state::of_this_thread()
            .floor
            .set(read!(entry(slot, completed - 1), number));
    }
}

/// A call that the library made to find the slot.
#[inline]
fn is_look_up(record: *const Record) -> bool {
    match i64::from(read!(record, call)) {
        libc::SYS_gettid => read!(record, args)[0] == LOOK_UP,
        call @ (libc::SYS_mmap | libc::SYS_madvise | libc::SYS_bpf) => {
            memory::is_own_call(call, read!(record, args))
        }
        _ => false,
    }
}

pub(super) fn last(keep: impl Fn(Last) -> bool) -> Option<Last> {
    let slot = own()?;
    if !liveness::may_believe_records(slot) {
        return None;
    }
    let floor = floor();
    let completed = read!(slot, completed);
    for back in 1..=completed.min(HISTORY_MAX as u64) {
        let record = entry(slot, completed - back);
        if read!(record, number) <= floor {
            return None;
        }
        let last = Last {
            record,
            _not_send: PhantomData,
        };
        if !is_look_up(record) && keep(last) {
            return Some(last);
        }
    }
    None
}

/// Copies a slot's records, the newest first, as far as they are above `floor`.
pub(crate) fn copy_history(slot: *const Slot, records: &mut [Record], floor: u64) -> usize {
    let mut copied = 0;
    let mut before = u64::MAX;
    let newest = read!(slot, completed);
    for back in 1..=newest.min(HISTORY_MAX as u64) {
        if copied == records.len() {
            break;
        }
        let Some(record) = copy_whole(entry(slot, newest - back)) else {
            continue;
        };
        // Out of order: overwritten for a later call since `newest` was read.
        if record.number <= floor || record.number >= before {
            continue;
        }
        before = record.number;
        if !is_look_up(&raw const record) {
            records[copied] = record;
            copied += 1;
        }
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::super::slot_fields::forget_triggers;
    use super::*;

    fn empty() -> Box<Slot> {
        // SAFETY: a slot consists of integers only.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    #[test]
    fn calls_to_decide_come_oldest_first_and_once() {
        let slot = Box::into_raw(empty());
        // SAFETY: the slot is this test's own.
        unsafe {
            for (index, number) in [(0, 9), (1, 0), (2, 4), (3, 7)] {
                (*undecided_at(slot, index)).number = number;
                (*undecided_at(slot, index)).at_ns = 10 * number;
            }
        }
        let taken = || take_undecided(slot).map(|call| (call.number, call.at_ns));
        assert_eq!(taken(), Some((4, 40)));
        assert_eq!(taken(), Some((7, 70)));
        assert_eq!(taken(), Some((9, 90)));
        assert_eq!(taken(), None);
        // SAFETY: as above.
        unsafe {
            (*slot).triggers_fired = 3;
            (*undecided_at(slot, 3)).number = 1;
        }
        forget_triggers(slot);
        assert!(take_undecided(slot).is_none());
        // SAFETY: it came from a box.
        let slot = unsafe { Box::from_raw(slot) };
        assert_eq!(slot.triggers_fired, 0);
    }

    #[test]
    fn a_record_is_found_by_its_number_while_it_is_there() {
        let mut slot = empty();
        slot.completed = 10;
        for number in 3..=10u64 {
            slot.history[(number as usize - 1) % HISTORY_MAX].number = number;
        }
        let found = |number| {
            let record = numbered(&raw const *slot, number)?;
            // SAFETY: it points into the slot.
            Some(unsafe { (*record).number })
        };
        assert_eq!((found(3), found(10)), (Some(3), Some(10)));
        assert_eq!((found(2), found(11)), (None, None));
    }
}
