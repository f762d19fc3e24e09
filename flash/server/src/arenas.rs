// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for each thread without a lock that another one may have.

/// More than there can be threads.
#[cfg(target_env = "gnu")]
const MOST: libc::c_int = 1 << 16;

/// Has glibc give each thread an arena of its own. It has eight for each CPU otherwise, so that with more threads a loop shares one
/// with a helper, and waits for its lock while the helper has it and no CPU. Before threads are started. Memory that another
/// thread has allocated is still freed under that thread's lock.
pub fn for_each_thread() {
    // SAFETY: the call takes numbers, and there are no other threads yet that it could surprise.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, MOST);
    }
}
