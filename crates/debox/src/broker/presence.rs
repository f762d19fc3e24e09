//! What tells clients, without a call of theirs, that the broker is there.
//!
//! A word in a page that every client maps and only the broker can write: that of a robust mutex which the
//! broker's thread holds. However the broker ends, the kernel takes the thread's number out of the word
//! (`exit_robust_list`, Documentation/locking/robust-futex-ABI.rst), and does so with the thread's memory,
//! before its files and with them the probes go.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{ensure, Context, Result};

/// What of the word is the holder's number, and 0 without a holder (`FUTEX_TID_MASK`).
pub(crate) const HOLDER: u32 = 0x3fff_ffff;

/// The page's length.
pub(crate) const LENGTH: usize = 4096;

/// Holds the mutex, until it is dropped.
pub struct Presence {
    mutex: *mut libc::pthread_mutex_t,
    page: OwnedFd,
    // Only the thread that holds a mutex lets go of it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Presence {
    pub fn begin() -> Result<Presence> {
        let what = "cannot make the page that tells clients of the broker";
        let page = make_page().context(what)?;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = page.as_raw_fd();
            libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context(what);
        }
        // From here on the page is given back when it is dropped.
        let presence = Presence {
            mutex: base.cast(),
            page,
            _of_this_thread: PhantomData,
        };
        // This process can write the page through what is mapped already; who gets the descriptor cannot.
        let seals =
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
        // SAFETY: takes integers only.
        if unsafe { libc::fcntl(presence.page.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(std::io::Error::last_os_error()).context(what);
        }
        // SAFETY: the page is zeroed memory of this thread's, larger than a mutex and at no other's hands.
        let failed = unsafe { hold(presence.mutex) };
        ensure!(failed == 0, "{what}: error {failed}");
        // SAFETY: gettid has no arguments.
        let tid = unsafe { libc::gettid() };
        let holder = presence.word().load(Ordering::SeqCst) & HOLDER;
        ensure!(
            holder == tid as u32,
            "{what}: this libc does not keep a mutex's holder in its first word"
        );
        Ok(presence)
    }

    /// What clients are given.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped as long as this is there.
        unsafe { AtomicU32::from_ptr(self.mutex.cast()) }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // SAFETY: the mutex is this thread's, or was never begun: then the first does nothing. Clients have
        // mappings of their own.
        unsafe {
            libc::pthread_mutex_unlock(self.mutex);
            libc::munmap(self.mutex.cast(), LENGTH);
        }
    }
}

fn make_page() -> std::io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        libc::memfd_create(c"debox-broker".as_ptr(), flags)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    let page = unsafe { OwnedFd::from_raw_fd(fd) };
    nix::unistd::ftruncate(&page, LENGTH as i64)?;
    Ok(page)
}

/// Makes a robust mutex and takes it; returns what pthread says.
///
/// # Safety
///
/// There is room for a mutex, which stays there until it is let go of.
unsafe fn hold(mutex: *mut libc::pthread_mutex_t) -> i32 {
    let mut wish = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let wish = wish.as_mut_ptr();
    // SAFETY: as the caller promises; the attributes are begun by the first call.
    unsafe {
        let steps = [
            libc::pthread_mutexattr_init(wish),
            libc::pthread_mutexattr_setrobust(wish, libc::PTHREAD_MUTEX_ROBUST),
            libc::pthread_mutexattr_setpshared(wish, libc::PTHREAD_PROCESS_SHARED),
            libc::pthread_mutex_init(mutex, wish),
            libc::pthread_mutexattr_destroy(wish),
        ];
        match steps.into_iter().find(|failed| *failed != 0) {
            Some(failed) => failed,
            None => libc::pthread_mutex_lock(mutex),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page as a client has it.
    fn map(page: BorrowedFd, protection: i32) -> Option<*mut u32> {
        let fd = page.as_raw_fd();
        // SAFETY: a new mapping, wherever there is room; the tests leave it there.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0) };
        (base != libc::MAP_FAILED).then_some(base.cast())
    }

    fn holder(word: *mut u32) -> u32 {
        // SAFETY: the tests leave the page where it is.
        unsafe { AtomicU32::from_ptr(word) }.load(Ordering::SeqCst) & HOLDER
    }

    #[test]
    fn the_word_has_a_holder_until_the_end() {
        let presence = Presence::begin().unwrap();
        let word = map(presence.descriptor(), libc::PROT_READ).unwrap();
        assert_ne!(holder(word), 0);
        drop(presence);
        assert_eq!(holder(word), 0);
    }

    #[test]
    fn the_word_has_no_holder_after_a_thread_that_did_not_end_in_order() {
        let page = std::thread::spawn(|| {
            let presence = Presence::begin().unwrap();
            let page = presence.descriptor().try_clone_to_owned().unwrap();
            let word = map(page.as_fd(), libc::PROT_READ).unwrap();
            assert_ne!(holder(word), 0);
            std::mem::forget(presence);
            page
        });
        let page = page.join().unwrap();
        let word = map(page.as_fd(), libc::PROT_READ).unwrap();
        assert_eq!(holder(word), 0);
    }

    #[test]
    fn nobody_else_writes_the_page() {
        let presence = Presence::begin().unwrap();
        let (page, both) = (presence.descriptor(), libc::PROT_READ | libc::PROT_WRITE);
        assert!(map(page, both).is_none());
        let word = map(page, libc::PROT_READ).unwrap();
        // SAFETY: changes, if anything, what the test has mapped itself.
        assert_ne!(unsafe { libc::mprotect(word.cast(), LENGTH, both) }, 0);
        assert!(nix::unistd::write(page, b"x").is_err());
        assert!(nix::unistd::ftruncate(page, 0).is_err());
        assert_ne!(holder(word), 0);
    }
}
