// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be known of a process in order to say whether it is a member.

use procfs::process::Process;

use crate::kernel;

const PF_KTHREAD: u32 = 0x0020_0000;

/// A process that exists and has not ended.
pub(super) struct Candidate {
    pub pid: u32,
    pub comm: String,
    /// When it began, in ticks since the boot: with the id, this names it for good.
    pub start: u64,
    process: Process,
}

impl Candidate {
    /// `None`: there is no such process, it has ended, or it is the kernel's own and makes no system calls.
    pub fn look_at(pid: u32) -> Option<Candidate> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let stat = process.stat().ok()?;
        if stat.flags & PF_KTHREAD != 0 || kernel::has_ended(&stat) {
            return None;
        }
        Some(Candidate {
            pid,
            comm: stat.comm,
            start: stat.starttime,
            process,
        })
    }

    /// The user whose rights it has.
    pub fn user(&self) -> Option<u32> {
        Some(self.process.status().ok()?.euid)
    }

    /// Its control groups: the hierarchies' numbers, and the paths in them.
    pub fn groups(&self) -> Vec<(u32, String)> {
        let groups = self.process.cgroups().into_iter().flatten();
        groups
            .map(|group| (group.hierarchy, group.pathname))
            .collect()
    }

    /// The number of its threads.
    pub fn threads(&self) -> u64 {
        let stat = self.process.stat();
        stat.map_or(1, |stat| u64::try_from(stat.num_threads).unwrap_or(1))
    }
}

/// The numbers of all processes that are visible.
pub(super) fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
