// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function that is called at the end of each tapped call.

use crate::record::Slot;

use super::state::{state, tap_of, Taps};
use super::{slot, thread_state, Error};

#[allow(improper_ctypes)] // the slot's layout is C's
extern "C" {
    fn debox_tap_watch(on_end: Option<extern "C" fn(*mut Slot)>);
}

/// Called at the end of each tapped call, with the word of the calling thread.
pub type Watcher = fn(usize);

static mut WATCHER: Option<Watcher> = None;

/// Registers `watcher` to be called at the end of each call tapped by this process or by the shim
/// that it runs under, on threads that set a word with [`watch_thread`]. It runs wherever the call
/// was made, also in signal handlers.
///
/// Returns whether there is a user tap that calls it.
///
/// # Errors
///
/// [`Error::NotEnabled`].
#[doc(hidden)]
pub fn watch(watcher: Watcher) -> Result<bool, Error> {
    let state = state();
    if !slot::is_enabled() {
        return Err(Error::NotEnabled);
    }
    // SAFETY: written under the lock, with the same value each time, before it is read.
    unsafe { WATCHER = Some(watcher) };
    match tap_of(&state) {
        Taps::Kernel => return Ok(false),
        // SAFETY: the function exists as long as the library.
        Taps::User => unsafe { debox_tap_watch(Some(on_end)) },
        Taps::Shim => {
            let name = c"debox_tap_watch";
            // SAFETY: looks a name up; the shim's function has this type.
            unsafe {
                let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                if found.is_null() {
                    return Ok(false);
                }
                let watch: extern "C" fn(Option<extern "C" fn(*mut Slot)>) =
                    std::mem::transmute(found);
                watch(Some(on_end));
            }
        }
    }
    Ok(true)
}

/// Gives this thread a word for the watcher; 0: it is not watched. Safe in signal handlers.
#[doc(hidden)]
pub fn watch_thread(word: usize) {
    thread_state::of_this_thread().watched.set(word);
}

extern "C" fn on_end(_slot: *mut Slot) {
    let word = thread_state::of_this_thread().watched.get();
    if word == 0 {
        return;
    }
    // SAFETY: errno of this thread is always there; the watcher is set before any word is.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        if let Some(watcher) = WATCHER {
            watcher(word);
        }
        *errno = saved;
    }
}
