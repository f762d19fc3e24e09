// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which terms helpers share a CPU with the loops.

use std::mem::MaybeUninit;

/// Has the calling thread, and those that it starts, take no CPU from a running loop when it wakes: it waits until the loop waits for
/// events, or its slice is over (sched(7), SCHED_BATCH). The share of the CPU is the same. Another policy that the server has been
/// given is kept.
pub fn yield_to_loops() {
    // SAFETY: all fields of the parameter are numbers, and the policies below take 0 only.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            let parameter: libc::sched_param = MaybeUninit::zeroed().assume_init();
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_helper_yield_too() {
        // SAFETY: the call takes a number.
        let own = || unsafe { libc::sched_getscheduler(0) };
        if own() != libc::SCHED_OTHER {
            return;
        }
        let helper = std::thread::spawn(move || {
            yield_to_loops();
            std::thread::spawn(own).join().expect("it ends")
        });
        assert_eq!(helper.join().expect("it ends"), libc::SCHED_BATCH);
        assert_eq!(own(), libc::SCHED_OTHER);
    }
}
