// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are mapped into memory, as the Flash of 2.4 served them.
//!
//! No instruction of the server touches the mapping: the kernel alone reads it, in `writev`. If the file was truncated, the
//! call fails with `EFAULT`, where a load would end the process with SIGBUS.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::io::Errno;

const PAGE: u64 = 4096;
/// Address space of one file, and mappings of the process: a process may have 65,530, and its memory needs some. Helpers
/// read what is beyond.
const LONGEST: u64 = 1 << 36;
const MOST: usize = 16_384;
/// Pages of one question.
const PAGES: usize = 64;

static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

pub struct Mapping {
    address: *mut libc::c_void,
    length: usize,
}

// SAFETY: the address is only given to the kernel, which lets all threads use it.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing is ever written.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `None`: the file cannot be mapped.
    pub fn of(file: BorrowedFd<'_>, size: u64) -> Option<Mapping> {
        let length = usize::try_from(size).ok()?;
        if length == 0 || size > LONGEST {
            return None;
        }
        let one_more = |mappings: usize| (mappings < MOST).then_some(mappings + 1);
        MAPPINGS.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        // SAFETY: a new mapping at an address that the kernel chooses; no reference to it is ever made.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            MAPPINGS.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Mapping { address, length })
    }

    /// Bytes from `begin` on that are in memory, as `mincore` says; at most to `end`, and of some pages.
    ///
    /// # Errors
    ///
    /// The kernel does not say.
    pub fn resident(&self, begin: u64, end: u64) -> Result<u64, Errno> {
        let end = end.min(self.length as u64);
        let first = begin / PAGE;
        let pages = end.div_ceil(PAGE).saturating_sub(first) as usize;
        let mut said = [0u8; PAGES];
        let pages = pages.min(PAGES);
        if pages == 0 {
            return Ok(0);
        }
        let address = self.address.wrapping_byte_add((first * PAGE) as usize);
        // SAFETY: the pages are in the mapping, and there is a byte for each.
        let status = unsafe { libc::mincore(address, pages * PAGE as usize, said.as_mut_ptr()) };
        if status != 0 {
            return Err(last_error());
        }
        let there = said[..pages].iter().take_while(|page| **page & 1 == 1);
        let known = (first + there.count() as u64) * PAGE;
        Ok(known.min(end).saturating_sub(begin))
    }

    /// Sends `head` and the bytes from `begin` on in one call, and returns how many of both went out.
    ///
    /// # Errors
    ///
    /// Those of writev. `FAULT`: the file has become shorter.
    pub fn send(
        &self,
        socket: &OwnedFd,
        head: &[u8],
        begin: u64,
        length: usize,
    ) -> Result<usize, Errno> {
        let end = (begin + length as u64).min(self.length as u64);
        let parts = [
            libc::iovec {
                iov_base: head.as_ptr().cast_mut().cast(),
                iov_len: head.len(),
            },
            libc::iovec {
                iov_base: self.address.wrapping_byte_add(begin as usize),
                iov_len: end.saturating_sub(begin) as usize,
            },
        ];
        // SAFETY: the kernel reads the head, and the mapping, which lives as long as `self`.
        let sent = unsafe { libc::writev(socket.as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(sent).map_err(|_| last_error())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it.
        unsafe { libc::munmap(self.address, self.length) };
        MAPPINGS.fetch_sub(1, Relaxed);
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_that_was_truncated_is_an_error_and_no_signal() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a");
        let bytes: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        std::fs::write(&path, &bytes).expect("room");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("it is there");
        let mapping = Mapping::of(file.as_fd(), 20_000).expect("memory");
        assert_eq!(mapping.resident(5000, 20_000), Ok(15_000));
        assert_eq!(mapping.resident(0, 100), Ok(100));
        assert_eq!(mapping.resident(20_000, 30_000), Ok(0));
        let (socket, mut other) = UnixStream::pair().expect("sockets");
        let socket = OwnedFd::from(socket);
        assert_eq!(mapping.send(&socket, b"head", 5000, 10_000), Ok(10_004));
        let mut received = vec![0; 10_004];
        other.read_exact(&mut received).expect("all of it");
        assert_eq!(received, [b"head", &bytes[5000..15_000]].concat());
        file.set_len(0).expect("it is ours");
        assert_eq!(mapping.send(&socket, b"", 8192, 4096), Err(Errno::FAULT));
        assert!(Mapping::of(file.as_fd(), 0).is_none());
    }
}
