// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF objects that a process holds, and whether the kernel still has them later.

use std::collections::BTreeSet;

/// A program, map or link by the kernel's number, read from the descriptors of a process. Whoever
/// else uses BPF on this machine is not confused with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelObject {
    Program(u32),
    Map(u32),
    Link(u32),
    /// A link to the clock of a CPU, of which each session has its own.
    ClockLink(u32),
}

impl KernelObject {
    /// All that a process holds.
    pub fn held_by(pid: i32) -> BTreeSet<Self> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten();
        let texts = entries
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        let mut held = BTreeSet::new();
        for text in texts {
            let is_of_clock = text.lines().any(|line| line == "link_type:\tperf");
            for line in text.lines() {
                let Some((name, number)) = line.split_once(':') else {
                    continue;
                };
                let Ok(number) = number.trim().parse() else {
                    continue;
                };
                match name {
                    "prog_id" => held.insert(Self::Program(number)),
                    "map_id" => held.insert(Self::Map(number)),
                    "link_id" if is_of_clock => held.insert(Self::ClockLink(number)),
                    "link_id" => held.insert(Self::Link(number)),
                    _ => continue,
                };
            }
        }
        held
    }

    /// True while the kernel has it. Asks for the next number, which takes no hold of the object: to open a map
    /// of programs that is about to go makes the kernel keep it for ever.
    pub fn exists(self) -> bool {
        // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID of linux/bpf.h.
        let (command, number): (libc::c_long, u32) = match self {
            Self::Program(number) => (11, number),
            Self::Map(number) => (12, number),
            Self::Link(number) | Self::ClockLink(number) => (31, number),
        };
        // The kernel takes a shorter `union bpf_attr` than its own and reads the rest as zero.
        let mut attributes: [u32; 4] = [number - 1, 0, 0, 0];
        // SAFETY: the attributes outlive the call, which writes one of them.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                attributes.as_mut_ptr(),
                size_of_val(&attributes),
            )
        };
        failed == 0 && attributes[1] == number
    }
}
