//! Shows, with a single load, whether the writer of the records is there. `broker/presence.rs` is the
//! other side.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::broker::presence::{HOLDER, LENGTH};

/// The word of a session of the process's own, which always counts as present.
static OWN: AtomicU32 = AtomicU32::new(1);

/// The word that shows whether the writer is there.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const OWN).cast_mut());

/// The address of the mapped broker's page. It is never unmapped, since threads read it without a lock;
/// the next broker's page replaces it.
static PAGE: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());

#[inline]
pub(super) fn is_there() -> bool {
    // SAFETY: whatever the pointer has been set to stays readable for ever.
    let word = unsafe { &*WORD.load(Ordering::Acquire) };
    word.load(Ordering::Acquire) & HOLDER != 0
}

/// Uses a broker's page from now on; returns false if it cannot be mapped. No allocation. The caller holds
/// the lock.
pub(super) fn watch(page: &OwnedFd) -> bool {
    let place = PAGE.load(Ordering::Relaxed);
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: a new mapping, or one that replaces this module's own.
    let mapped = unsafe {
        let flags = libc::MAP_SHARED | fixed;
        libc::mmap(place, LENGTH, libc::PROT_READ, flags, page.as_raw_fd(), 0)
    };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    PAGE.store(mapped, Ordering::Relaxed);
    WORD.store(mapped.cast(), Ordering::Release);
    true
}

/// Uses the word of the process's own session from now on.
pub(super) fn forget() {
    WORD.store((&raw const OWN).cast_mut(), Ordering::Release);
}
