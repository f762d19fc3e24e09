//! The user tap of a run through the broker: the command's processes ask here for the slots that the
//! broker gave.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::broker::client;
use crate::broker::peer::Peer;
use crate::usertap::TapServer;

/// Answers the command's processes that ask for their slots.
pub fn start(connection: &OwnedFd, count: u32, slots: OwnedFd) -> Result<TapServer> {
    let (_, tids) = client::hear(connection)?;
    let tids = tids.context("the broker gave no table of threads")?;
    let table = Tids::map(&tids, count).context("cannot map the table of threads")?;
    let (slots_fd, tids_fd) = (slots.as_raw_fd(), tids.as_raw_fd());
    let is_monitored = move |peer: &Peer| {
        let _given_on = (&slots, &tids); // kept as long as this serves
        table.has(peer.pid)
    };
    TapServer::start(count, slots_fd, tids_fd, false, is_monitored)
}

/// The thread of each slot, as the probes keep it: an array whose entries are eight bytes apart.
struct Tids {
    base: *const AtomicU32,
    count: usize,
}

// SAFETY: the mapping belongs to this value only, and its words are read as atomics.
unsafe impl Send for Tids {}

const STRIDE: usize = 2;

impl Tids {
    fn map(table: &OwnedFd, count: u32) -> io::Result<Tids> {
        let count = count as usize;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * STRIDE * 4,
                libc::PROT_READ,
                libc::MAP_SHARED,
                table.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast_const().cast();
        Ok(Tids { base, count })
    }

    /// Free entries hold 0, which is no thread.
    fn has(&self, tid: u32) -> bool {
        tid != 0
            && (0..self.count).any(|at| {
                // SAFETY: inside the mapping, which lives as long as this value.
                let word = unsafe { &*self.base.add(at * STRIDE) };
                word.load(Ordering::Relaxed) == tid
            })
    }
}

impl Drop for Tids {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.count * STRIDE * 4) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn free_entries_are_no_thread() {
        // SAFETY: the name is a valid C string; nothing else owns the new descriptor.
        let mut file = unsafe {
            use std::os::fd::FromRawFd;
            File::from_raw_fd(libc::memfd_create(c"tids".as_ptr(), libc::MFD_CLOEXEC))
        };
        for word in [77u64, 0, 5] {
            file.write_all(&word.to_ne_bytes()).unwrap();
        }
        let table = Tids::map(&file.into(), 3).unwrap();
        assert!(table.has(77) && table.has(5));
        assert!(!table.has(0) && !table.has(78));
    }
}
