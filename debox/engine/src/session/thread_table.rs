// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes' table of threads, mapped for reading: to have it copied out of the kernel, entry by entry, takes longer.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

use crate::tables::{self, types};

struct ThreadTable {
    base: NonNull<types::thread>,
    length: NonZeroUsize,
    count: usize,
}

/// Those of the first `count` threads that live. The probes may change one while it is read, as they may while the
/// kernel copies it.
pub(super) fn living(map: impl AsFd, count: u32) -> Result<Vec<types::thread>> {
    match ThreadTable::map(map, count as usize)? {
        Some(table) => Ok(table.living()),
        None => Ok(Vec::new()),
    }
}

impl ThreadTable {
    /// `None` if there are no threads.
    fn map(map: impl AsFd, count: usize) -> Result<Option<ThreadTable>> {
        let Some(length) = NonZeroUsize::new(count * size_of::<types::thread>()) else {
            return Ok(None);
        };
        // SAFETY: a new mapping, wherever there is room, and only for reading.
        let base = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                map,
                0,
            )
        };
        let base = base.context("cannot map the table of threads")?.cast();
        Ok(Some(ThreadTable {
            base,
            length,
            count,
        }))
    }

    fn living(&self) -> Vec<types::thread> {
        let mut living = Vec::with_capacity(self.count);
        for index in 0..self.count {
            // SAFETY: inside the mapping. Others write to it at any time, hence volatile; any bytes are a valid thread.
            unsafe {
                let thread = self.base.as_ptr().add(index);
                if ptr::read_volatile(&raw const (*thread).state) == tables::THREAD_LIVE {
                    living.push(ptr::read_volatile(thread));
                }
            }
        }
        // One that ended in between is an event.
        living.retain(|thread| thread.state == tables::THREAD_LIVE);
        living
    }
}

impl Drop for ThreadTable {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own. That it cannot be removed has no remedy.
        let _ = unsafe { munmap(self.base.cast(), self.length.get()) };
    }
}
