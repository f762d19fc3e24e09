//! Signals of a thread, held back for a while.

use std::marker::PhantomData;
use std::ptr;

/// While it lives, the thread that made it takes no signals. Those that come meanwhile are delivered
/// when it is dropped, or at once to another thread. Safe in signal handlers.
///
/// The kernel gives up verifying a program when a signal is delivered to the thread, with EAGAIN.
/// libbpf begins anew five times; a timer that fires every millisecond outlasts that.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    pub(crate) fn all() -> Blocked {
        // SAFETY: the sets are valid, and any bytes are one.
        let before = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            before
        };
        Blocked {
            before,
            of_this_thread: PhantomData,
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is what the thread's mask was.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
