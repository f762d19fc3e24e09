//! What happens when the process forks: the child gets its own view of the slots.

use std::cell::UnsafeCell;
use std::sync::{MutexGuard, OnceLock};

use super::state::{state, State};
use super::{decide, memory, slot, user_tap, Error};

/// The lock and the parent's generation, from before the fork until after it. Held so that the
/// child never finds the state half changed, or its lock taken by a thread that it does not have.
struct Held(UnsafeCell<Option<(MutexGuard<'static, State>, u64)>>);

// SAFETY: only the thread that holds the lock accesses it, and in the child there is no other.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Registers the handlers, once.
pub(super) fn install() -> Result<(), Error> {
    static FAILED: OnceLock<i32> = OnceLock::new();
    let failed = *FAILED.get_or_init(|| {
        // SAFETY: the handlers are functions of this library, which is not unloaded while it runs.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) }
    });
    match failed {
        0 => Ok(()),
        code => Err(Error::System(format!(
            "cannot follow forks: {}",
            std::io::Error::from_raw_os_error(code)
        ))),
    }
}

extern "C" fn prepare() {
    let guard = state();
    user_tap::hold_clock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some((guard, memory::generation())) };
}

extern "C" fn parent() {
    user_tap::release_clock();
    // SAFETY: this thread has held the lock since `prepare`; taking the guard out releases it.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn child() {
    user_tap::release_clock();
    // SAFETY: the only thread of the child is the one that took the lock in `prepare`.
    let held = unsafe { (*HELD.0.get()).take() };
    let Some((guard, generation)) = held else {
        return;
    };
    decide::forget_users();
    memory::follow_fork(generation);
    drop(guard);
    slot::hide_all();
}
