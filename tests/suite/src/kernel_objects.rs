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
                    "link_id" => held.insert(Self::Link(number)),
                    _ => continue,
                };
            }
        }
        held
    }

    /// True while the kernel has it.
    pub fn exists(self) -> bool {
        // BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID, BPF_LINK_GET_FD_BY_ID of linux/bpf.h.
        let (command, number): (libc::c_long, u32) = match self {
            Self::Program(number) => (13, number),
            Self::Map(number) => (14, number),
            Self::Link(number) => (30, number),
        };
        // The kernel takes a shorter `union bpf_attr` than its own and reads the rest as zero.
        let attributes: [u32; 4] = [number, 0, 0, 0];
        // SAFETY: the attributes outlive the call, which only reads them.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        if fd < 0 {
            return false;
        }
        // SAFETY: the descriptor is ours and used by nobody else.
        unsafe { libc::close(fd as i32) };
        true
    }
}
