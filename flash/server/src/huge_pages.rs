// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel gives memory in pages of 2 MiB where it can.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl::{get_thp_disable, set_thp_disable};

static ARE_AVOIDED: AtomicBool = AtomicBool::new(false);

/// Has this process, from now on, take small pages. The allocator has memory of its own for each thread, and where the kernel
/// always gives huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`), each of a few helpers would take 2 MiB for some
/// kilobytes. Where it cannot be had, as on kernels without huge pages, nothing is different.
pub fn avoid() {
    if get_thp_disable() == Ok(false) && set_thp_disable(true).is_ok() {
        ARE_AVOIDED.store(true, Ordering::Relaxed);
    }
}

/// In a process whose children are programs of others, which inherit it: as it was.
pub fn allow() {
    if ARE_AVOIDED.load(Ordering::Relaxed) {
        let _ = set_thp_disable(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_before_again() {
        let before = get_thp_disable();
        avoid();
        assert!(get_thp_disable() != Ok(false));
        allow();
        assert_eq!(get_thp_disable(), before);
    }
}
