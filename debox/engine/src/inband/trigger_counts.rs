// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of triggers: mapped from the probes while there is a session, and kept when it has ended. Reading and
//! counting is safe in signal handlers.

use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::tables::types;
use crate::trigger::TRIGGERS_MAX;

use super::Error;

pub(super) type Counts = types::trigger_counts;

/// The triggers' counters: the probes' own while there is a session, and their last values after it has
/// ended. Never unmapped.
static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(ptr::null_mut());
const COUNTS_LENGTH: usize = TRIGGERS_MAX * size_of::<Counts>();

/// The result of [`super::trigger_counts()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct TriggerCounts {
    /// Calls for which the predicate held, within the limit.
    pub fired: u64,
    /// Calls for which it held but the limit suppressed the trigger.
    pub suppressed: u64,
    /// Calls for which it could not be determined whether it held, or whose record had been overwritten
    /// by then.
    pub missed: u64,
    /// Signals that the kernel refused to send.
    pub unsent: u64,
    pub reserved: [u64; 4],
}

/// Counts a call for which it can no longer be determined whether the predicate holds, or whose record is
/// gone.
pub(super) fn count_missed(index: usize) {
    add(index, offset_of!(Counts, undecided_lost));
}

/// A trigger's counts; zeros before the first session.
pub(super) fn counts(index: usize) -> TriggerCounts {
    let read = |field| counter(index, field).map_or(0, |counter| counter.load(Ordering::Relaxed));
    TriggerCounts {
        fired: read(offset_of!(Counts, fired)),
        suppressed: read(offset_of!(Counts, suppressed)),
        missed: read(offset_of!(Counts, undecided_lost)),
        unsent: read(offset_of!(Counts, unsent)),
        reserved: [0; 4],
    }
}

pub(super) fn add(index: usize, field: usize) {
    if let Some(counter) = counter(index, field) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// One of a trigger's counters, by its place in [`Counts`].
pub(super) fn counter(index: usize, field: usize) -> Option<&'static AtomicU64> {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() || index >= TRIGGERS_MAX {
        return None;
    }
    // SAFETY: the counters of all triggers are mapped for good, aligned, and only ever changed by
    // atomic operations, the probes' included.
    Some(unsafe { AtomicU64::from_ptr(counts.add(index).byte_add(field).cast()) })
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps the probes' counters at the address in [`COUNTS`], or anywhere the first time.
pub(super) fn map_counts(fd: i32) -> Result<(), Error> {
    let before = COUNTS.load(Ordering::Relaxed);
    let fixed = if before.is_null() { 0 } else { libc::MAP_FIXED };
    let (at, flags) = (before.cast(), libc::MAP_SHARED | fixed);
    // SAFETY: a new mapping, or one that replaces this module's own.
    let mapped = unsafe { libc::mmap(at, COUNTS_LENGTH, READ_WRITE, flags, fd, 0) };
    if mapped == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return Err(Error::System(format!(
            "cannot map the counters of triggers: {error}"
        )));
    }
    COUNTS.store(mapped.cast(), Ordering::Release);
    Ok(())
}

/// Replaces the mapping of the probes' counters by private memory with the same values.
pub(super) fn keep_counts() {
    let counts = COUNTS.load(Ordering::Relaxed);
    if counts.is_null() {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the counters are mapped, any bytes are such numbers, and the new mapping replaces this
    // module's own. If it fails, the old one stays.
    unsafe {
        let last: [Counts; TRIGGERS_MAX] = ptr::read_volatile(counts.cast());
        let mapped = libc::mmap(counts.cast(), COUNTS_LENGTH, READ_WRITE, flags, -1, 0);
        if mapped != libc::MAP_FAILED {
            ptr::write_volatile(counts.cast(), last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters are mapped like those of the probes, and kept when these are gone.
    #[test]
    fn firings_are_counted() {
        assert_eq!(counts(0), TriggerCounts::default());
        // SAFETY: the name is a string, and the descriptor is closed once.
        unsafe {
            let fd = libc::memfd_create(c"counts".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(fd, 4096), 0);
            map_counts(fd).expect("mapped");
            libc::close(fd);
        }
        let window = |trigger| counter(trigger, offset_of!(Counts, window));
        let of_second = window(1).expect("mapped").fetch_add(3, Ordering::Relaxed);
        assert_eq!(of_second, 0);
        assert_eq!(window(0).expect("mapped").load(Ordering::Relaxed), 0);
        add(1, offset_of!(Counts, fired));
        count_missed(1);
        keep_counts();
        count_missed(1);
        let expected = TriggerCounts {
            fired: 1,
            missed: 2,
            ..TriggerCounts::default()
        };
        assert_eq!(counts(1), expected);
        assert_eq!(counts(TRIGGERS_MAX), TriggerCounts::default());
    }
}
