//! Reports the kernel locks that calls spun on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Snapshot;
use crate::calls;
use crate::explain::{Explainer, UNKNOWN};
use crate::frame::Frame;
use crate::report::Spin;
use crate::resources::Resources;
use crate::tables::{add, types};

/// The function through which the kernel calls a probe of the event: frames inside it belong to the
/// event.
const EVENT: &str = "__traceiter_contention_begin";

impl Snapshot {
    /// The spins. Locks that look the same in the report are merged.
    pub(super) fn spins(&self, explainer: &Explainer, names: &Resources) -> Vec<Spin> {
        let mut merged: BTreeMap<(String, String, Option<String>, Frame), Spin> = BTreeMap::new();
        for (key, row) in self.spins.iter().filter(|(_, row)| row.count > 0) {
            let lock = names.describe(&row.resource, key.flags, &types::resource_row::default());
            let syscall = calls::name(key.call);
            let site = self.taken_in(explainer, row.stack);
            let spin = merged
                .entry((
                    syscall.clone(),
                    lock.kind.clone(),
                    lock.name.clone(),
                    site.clone(),
                ))
                .or_insert_with(|| Spin {
                    syscall,
                    lock,
                    site,
                    ..Spin::default()
                });
            add(&mut spin.count, row.count);
            add(&mut spin.spin_ns, row.ns);
            spin.max_ns = spin.max_ns.max(row.max_ns);
        }
        let mut spins: Vec<Spin> = merged.into_values().collect();
        spins.sort_by_key(|spin| Reverse(spin.spin_ns));
        spins
    }

    /// The innermost function that belongs neither to the event nor to the lock's implementation.
    fn taken_in(&self, explainer: &Explainer, stack: u64) -> Frame {
        let stack = self.stacks.kernel.get(&stack);
        let frames = stack.map(|stack| explainer.kernel_frames(stack));
        let frames = frames.unwrap_or_default();
        let begin = frames
            .iter()
            .position(|frame| frame.function.starts_with(EVENT));
        let below = frames[begin.map_or(0, |at| at + 1)..].iter();
        let mut own = below.filter(|frame| !is_of_lock(&frame.function));
        own.next()
            .map_or_else(|| Frame::remark(UNKNOWN), Frame::clone)
    }
}

/// Whether the function belongs to a lock's implementation, or to the path that runs a probe, by
/// the beginning of its name.
fn is_of_lock(function: &str) -> bool {
    const BEGIN: [&str; 14] = [
        "bpf_",
        "__bpf_",
        "__traceiter_",
        "trace_contention",
        "native_queued_",
        "queued_",
        "__pv_queued",
        "_raw_",
        "__raw_",
        "do_raw_",
        "mutex_",
        "__mutex_",
        "rwsem_",
        "osq_lock",
    ];
    let name = function.split('.').next().unwrap_or_default();
    let is_lock = ["down_read", "down_write", "__down_read", "__down_write"];
    BEGIN.iter().any(|begin| name.starts_with(begin))
        || is_lock.iter().any(|lock| name.starts_with(lock))
        || matches!(name, "ww_mutex_lock" | "lock_sock_nested" | "__lock_sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_locks_are_passed_over() {
        for frame in [
            "bpf_prog_1d5f_on_contention_begin+0x1",
            "bpf_trace_run2+0x7",
            "native_queued_spin_lock_slowpath+0x2af (qspinlock.c:3)",
            "_raw_spin_lock+0x2d",
            "__mutex_lock.constprop.0+0x1",
            "rwsem_down_write_slowpath+0x4",
            "down_write+0x3",
        ] {
            assert!(is_of_lock(&Frame::from(frame).function), "{frame}");
        }
        for frame in [
            "pipe_write+0x4f",
            "futex_wake+0x1 (waitwake.c:7)",
            "lockref_get+0x1",
        ] {
            assert!(!is_of_lock(&Frame::from(frame).function), "{frame}");
        }
    }
}
