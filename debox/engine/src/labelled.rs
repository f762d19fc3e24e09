// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way from a kernel stack to a label.

use crate::calls;
use crate::labels::{Class, Labels};
use crate::symbols::Frame;
use crate::tables;

/// A stack with its label.
pub(crate) struct Labelled<'a> {
    pub label: String,
    pub class: Class,
    /// The frame that decided to wait; `None` of an empty stack.
    pub site: Option<&'a Frame>,
}

impl Labelled<'_> {
    /// `frames` are innermost first; `args` are those that rules look at.
    pub fn of(
        call: u32,
        args: Option<[u64; 3]>,
        frames: &[Frame],
        lock_flags: u32,
    ) -> Labelled<'_> {
        let names = frames.iter().map(|frame| frame.function.as_str());
        let functions: Vec<&str> = functions(lock_flags, names).collect();
        let before = functions.len() - frames.len();
        let explained = Labels::builtin().explain(&calls::name(call), args, &functions);
        let site = explained
            .site_index
            .and_then(|index| index.checked_sub(before))
            .and_then(|index| frames.get(index));
        Labelled {
            label: explained.label,
            class: explained.class,
            site: site.or(frames.first()),
        }
    }
}

/// The functions that the rules of labels expect for a stack, innermost first. Allocates nothing.
pub(crate) fn functions<'a>(
    lock_flags: u32,
    frames: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    lock_frame(lock_flags).into_iter().chain(frames)
}

/// The kernel leaves its lock functions out of a sleeping task's stack. The contention events show
/// the kind of lock; this is the frame that the rules expect for it.
fn lock_frame(flags: u32) -> Option<&'static str> {
    let is = |flag: u32| flags & flag != 0;
    Some(if is(tables::LOCK_MUTEX) {
        "mutex_lock"
    } else if is(tables::LOCK_PERCPU) {
        "percpu_rwsem_wait"
    } else if is(tables::LOCK_RT) {
        "rt_mutex_slowlock"
    } else if is(tables::LOCK_SEMAPHORE) {
        "__down"
    } else if is(tables::LOCK_WRITE) {
        "rwsem_down_write_slowpath"
    } else if is(tables::LOCK_READ) {
        "rwsem_down_read_slowpath"
    } else if is(tables::LOCK_TIMED_OUT) {
        // Not a lock: the call waited for its time limit.
        "do_nanosleep"
    } else {
        return None;
    })
}
