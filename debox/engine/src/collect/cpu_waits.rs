//! Reports who had the CPU that threads waited for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Snapshot;
use crate::calls;
use crate::report::{CpuWait, Syscall};
use crate::tables::{self, types};

/// In the order of the probes' numbers.
const KINDS: [&str; 8] = [
    "unknown", "task", "kernel", "idle", "quota", "hidden", "many", "stolen",
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

/// Whose the CPU was, in a word.
pub(crate) fn cpu_owner_kind(kind: u32) -> &'static str {
    KINDS.get(kind as usize).unwrap_or(&KINDS[0])
}

fn wait(key: &types::cpu_key, row: &types::cpu_row, own: &BTreeSet<u32>) -> CpuWait {
    let is_task = [tables::CPU_OWNER_TASK, tables::CPU_OWNER_KERNEL].contains(&key.kind);
    let is_quota = key.kind == tables::CPU_OWNER_QUOTA;
    let group = tables::text(&row.group);
    CpuWait {
        syscall: calls::name(key.call),
        part: part(key.part).to_string(),
        kind: cpu_owner_kind(key.kind).to_string(),
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

fn part(number: u32) -> &'static str {
    match number as usize {
        tables::PART_PREEMPTED => "preempted",
        _ => "runqueue",
    }
}

/// For each call, the waits that had not ended and those that no switch showed.
fn untold(waits: &[CpuWait], syscalls: &[Syscall]) -> Vec<CpuWait> {
    let mut told: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for wait in waits {
        let sum = told.entry((&wait.syscall, &wait.part)).or_default();
        tables::add(sum, wait.ns);
    }
    let mut untold = Vec::new();
    for call in syscalls {
        for (part, ns) in [
            ("runqueue", call.runqueue_ns),
            ("preempted", call.preempted_ns),
        ] {
            let told = told.get(&(call.name.as_str(), part)).copied();
            let ns = ns.saturating_sub(told.unwrap_or(0));
            if ns > 0 {
                untold.push(CpuWait {
                    syscall: call.name.clone(),
                    part: part.to_string(),
                    kind: "untold".to_string(),
                    ns,
                    max_ns: ns,
                    ..CpuWait::default()
                });
            }
        }
    }
    untold
}
