//! Reports who had the CPU that threads waited for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Snapshot;
use crate::calls;
use crate::report::{CpuWait, CpuWaitKind, CpuWaitPart, Syscall};
use crate::tables::{self, types};

/// In the order of the probes' numbers.
const KINDS: [CpuWaitKind; 8] = [
    CpuWaitKind::Unknown,
    CpuWaitKind::Task,
    CpuWaitKind::Kernel,
    CpuWaitKind::Idle,
    CpuWaitKind::Quota,
    CpuWaitKind::Hidden,
    CpuWaitKind::Many,
    CpuWaitKind::Stolen,
];

impl Snapshot {
    /// The longest first. Including the `untold` rows, they add up to the time that the calls
    /// waited.
    pub(super) fn cpu_waits(&self, syscalls: &[Syscall]) -> Vec<CpuWait> {
        if !self.detail.cpu {
            return Vec::new();
        }
        let own: BTreeSet<u32> = self.threads.iter().map(|thread| thread.tgid).collect();
        let rows = self.cpu_waits.iter();
        let mut waits: Vec<CpuWait> = rows.map(|(key, row)| wait(key, row, &own)).collect();
        waits.extend(untold(&waits, syscalls));
        waits.sort_by_key(|wait| Reverse(wait.ns));
        waits
    }
}

/// Whose the CPU was.
pub(crate) fn cpu_owner_kind(kind: u32) -> CpuWaitKind {
    KINDS.get(kind as usize).copied().unwrap_or_default()
}

fn wait(key: &types::cpu_key, row: &types::cpu_row, own: &BTreeSet<u32>) -> CpuWait {
    let is_task = [tables::CPU_OWNER_TASK, tables::CPU_OWNER_KERNEL].contains(&key.kind);
    let is_quota = key.kind == tables::CPU_OWNER_QUOTA;
    let group = tables::text(&row.group);
    CpuWait {
        syscall: calls::name(key.call),
        part: Some(part(key.part)),
        kind: cpu_owner_kind(key.kind),
        comm: is_task.then(|| tables::comm(&row.comm)),
        pid: is_task.then_some(key.tgid),
        is_own: key.kind == tables::CPU_OWNER_TASK && own.contains(&key.tgid),
        is_real_time: row.flags & tables::CPU_RUN_REAL_TIME != 0,
        group: (is_quota && !group.is_empty()).then_some(group),
        quota_ns: is_quota.then_some(row.quota_ns),
        period_ns: is_quota.then_some(row.period_ns),
        turns: row.turns,
        ns: row.ns,
        max_ns: row.max_ns,
        cpus_allowed: Some(row.cpus_allowed),
    }
}

fn part(number: u32) -> CpuWaitPart {
    match number as usize {
        tables::PART_PREEMPTED => CpuWaitPart::Preempted,
        _ => CpuWaitPart::Runqueue,
    }
}

/// For each call, the waits that had not ended and those that no switch showed.
fn untold(waits: &[CpuWait], syscalls: &[Syscall]) -> Vec<CpuWait> {
    let mut told: BTreeMap<(&str, Option<CpuWaitPart>), u64> = BTreeMap::new();
    for wait in waits {
        let sum = told.entry((&wait.syscall, wait.part)).or_default();
        tables::add(sum, wait.ns);
    }
    let mut untold = Vec::new();
    for call in syscalls {
        for (part, ns) in [
            (CpuWaitPart::Runqueue, call.runqueue_ns),
            (CpuWaitPart::Preempted, call.preempted_ns),
        ] {
            let told = told.get(&(call.name.as_str(), Some(part))).copied();
            let ns = ns.saturating_sub(told.unwrap_or(0));
            if ns > 0 {
                untold.push(CpuWait {
                    syscall: call.name.clone(),
                    part: Some(part),
                    kind: CpuWaitKind::Untold,
                    ns,
                    max_ns: ns,
                    ..CpuWait::default()
                });
            }
        }
    }
    untold
}
