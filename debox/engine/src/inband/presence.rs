//! Whether those who write the records are there, as one load: `broker/presence.rs` has the other side.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::broker::presence::{HOLDER, LENGTH};

/// The word of a session of the process's own, which is there as long as it is open.
static OWN: AtomicU32 = AtomicU32::new(1);

/// The word that tells.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const OWN).cast_mut());

/// Where a broker's page is mapped, for good, since threads read it without a lock: the next one comes in
/// its place.
static PAGE: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());

#[inline]
pub(super) fn is_there() -> bool {
    // SAFETY: whatever the pointer has been set to stays readable for good.
    let word = unsafe { &*WORD.load(Ordering::Acquire) };
    word.load(Ordering::Acquire) & HOLDER != 0
}

/// Looks at a broker's page from now on; false if it cannot be mapped. No allocation. The caller holds the
/// lock.
pub(super) fn watch(page: &OwnedFd) -> bool {
    let place = PAGE.load(Ordering::Relaxed);
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: a new mapping, or one in the place of this module's own.
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

/// Nobody's but the process's own records are read from now on.
pub(super) fn forget() {
    WORD.store((&raw const OWN).cast_mut(), Ordering::Release);
}
