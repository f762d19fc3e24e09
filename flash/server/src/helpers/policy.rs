// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which terms helpers share a CPU with the loops.

/// Has the calling thread, and those that it starts, take no CPU from a running loop when it wakes: it waits until the loop waits for
/// events, or its slice is over (sched(7), SCHED_BATCH). The share of the CPU is the same. Another policy that the server has been
/// given is kept.
pub fn yield_to_loops() {
    if own() == libc::SCHED_OTHER {
        // SAFETY: all fields of the parameter are numbers, and the policy takes 0 only.
        unsafe {
            let parameter: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter);
        }
    }
}

/// The calling thread's policy.
pub fn own() -> libc::c_int {
    // SAFETY: the call takes a number.
    unsafe { libc::sched_getscheduler(0) }
}
