//! Blocks a thread's signals for a while.

use std::marker::PhantomData;
use std::ptr;

/// While this value exists, the thread that made it receives no signals. Signals that arrive
/// meanwhile are delivered when it is dropped, or at once to another thread. Safe in signal
/// handlers.
///
/// When a signal is delivered to the thread, the kernel stops verifying a program and returns
/// EAGAIN. libbpf tries again five times; a timer that fires every millisecond outlasts that.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    pub(crate) fn all() -> Blocked {
        // SAFETY: the sets are valid, as any bytes are a valid set.
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
        // SAFETY: `before` is the thread's previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
