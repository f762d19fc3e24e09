// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether bytes of a file are in memory, so that sending them waits for no disk.
//!
//! `cachestat` answers for a range at once, but only to who may write the file or owns it, and on some file systems not
//! truly. `preadv2(RWF_NOWAIT)` is true wherever it works, and copies, so what is large is read over each other and then
//! sent without being copied. Where neither works, helpers read.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use std::{io, mem};

use rustix::io::{Errno, ReadWriteFlags};

use crate::files::{File, SMALL};
use crate::helpers::reading::is_read;

/// Bytes that are copied at once.
pub const COPIED: usize = 64 << 10;
/// Bytes that are sent at once without being copied. What the kernel takes away in the meantime makes the loop wait.
pub const SENT: u64 = 256 << 10;
/// Brought into memory by one job of a helper.
pub const BROUGHT: u64 = 512 << 10;

const PAGE: u64 = 4096;
/// What is read to see whether it is there is written over each other in pieces of so many bytes.
const FORGOTTEN: usize = 16 << 10;
const PIECES: usize = 16;

const _: () = assert!((FORGOTTEN * PIECES) as u64 == SENT);

/// How the next bytes can be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Ready {
    /// So many are in the buffer.
    Copied(usize),
    /// So many are in memory.
    Resident(u64),
    /// They have to be brought by a helper first.
    Absent,
    /// They have to be read by a helper, as this file system does not tell.
    Unknown,
    /// The file ends before.
    Short,
    Failed(Errno),
}

/// Looks at `begin..end` of a file. `was_brought`: a helper has just brought it. `copies`: the bytes are needed in the
/// buffer.
pub fn look(
    file: &File,
    begin: u64,
    end: u64,
    was_brought: bool,
    copies: bool,
    buffer: &mut [u8],
) -> Ready {
    let length = end - begin;
    if length <= SMALL || copies {
        let read = read(file, begin, end, buffer);
        // tmpfs knows what is in memory, but has no read that does not wait.
        if copies || read != Ready::Unknown || is_silent(file.id.device) {
            return read;
        }
    }
    let length = length.min(SENT);
    let is_hidden = file.hides_residency.load(Ordering::Relaxed) || is_read(file.id);
    let mut contradicts = false;
    if !is_hidden && !is_silent(file.id.device) {
        match is_resident(file.fd.as_fd(), begin, length) {
            Ok(true) if is_there(file, begin + length - 1) => return Ready::Resident(length),
            Ok(true) => {}
            Ok(false) if !was_brought => return Ready::Absent,
            // Refused, or contradicted by what the helper has just done.
            told => {
                contradicts = told.is_ok();
                file.hides_residency.store(true, Ordering::Relaxed);
            }
        }
    }
    let touched = touch(file, begin, length, buffer);
    if contradicts && touched == Ready::Unknown {
        silence(file.id.device);
    }
    touched
}

/// Devices whose file system has no read that does not wait, and contradicts what a helper has just read, as overlayfs does:
/// what is brought into memory there has to be read by a helper all the same. Each until when that is believed, because
/// the number may be another file system's later.
static SILENT: RwLock<Vec<(u64, Instant)>> = RwLock::new(Vec::new());
const BELIEVED: Duration = Duration::from_secs(60);
const DEVICES: usize = 64;

pub fn is_silent(device: u64) -> bool {
    let silent = SILENT.read().unwrap_or_else(PoisonError::into_inner);
    let known = silent.iter().find(|(its, _)| *its == device);
    known.is_some_and(|(_, until)| Instant::now() < *until)
}

fn silence(device: u64) {
    let now = Instant::now();
    let mut silent = SILENT.write().unwrap_or_else(PoisonError::into_inner);
    silent.retain(|(its, until)| *its != device && now < *until);
    if silent.len() < DEVICES {
        silent.push((device, now + BELIEVED));
    }
}

/// How much of a range is in memory, from its begin on: it is read, and what is read is forgotten. All of it goes to the
/// same few pages, which stay in the processor's cache. That takes less time than to send the bytes from a buffer, for
/// which the kernel would copy them once more.
fn touch(file: &File, begin: u64, length: u64, buffer: &mut [u8]) -> Ready {
    let piece = buffer.len().min(FORGOTTEN);
    let most = length.min((piece * PIECES) as u64);
    let mut parts = [libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: piece,
    }; PIECES];
    let used = usize::try_from(most.div_ceil(piece.max(1) as u64)).unwrap_or(PIECES);
    let before = (used.saturating_sub(1) * piece) as u64;
    parts[used.saturating_sub(1)].iov_len = usize::try_from(most - before).unwrap_or(piece);
    let Ok(at) = libc::off_t::try_from(begin) else {
        return Ready::Short;
    };
    // SAFETY: each part is a piece of `buffer`, which only the kernel uses meanwhile, and all it writes is bytes.
    let read = unsafe {
        libc::preadv2(
            file.fd.as_raw_fd(),
            parts.as_ptr(),
            used as libc::c_int,
            at,
            libc::RWF_NOWAIT,
        )
    };
    match u64::try_from(read) {
        Ok(0) => Ready::Short,
        Ok(read) => Ready::Resident(read),
        Err(_) => not_read(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Whether a byte is in memory, and not only its page, which another process may just be reading: pages are read in
/// order, so the last one tells of those before it.
fn is_there(file: &File, at: u64) -> bool {
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(&file.fd, &mut parts, at, ReadWriteFlags::NOWAIT);
    // Where this call does not exist, `cachestat` is all that there is.
    !matches!(read, Ok(0) | Err(Errno::AGAIN | Errno::INTR))
}

/// Reads what is in memory, from `begin` on.
pub fn read(file: &File, begin: u64, end: u64, buffer: &mut [u8]) -> Ready {
    let length = end - begin;
    let most = buffer
        .len()
        .min(COPIED)
        .min(usize::try_from(length).unwrap_or(COPIED));
    let mut parts = [io::IoSliceMut::new(&mut buffer[..most])];
    match rustix::io::preadv2(&file.fd, &mut parts, begin, ReadWriteFlags::NOWAIT) {
        Ok(0) => Ready::Short,
        Ok(read) => Ready::Copied(read),
        Err(error) => not_read(error),
    }
}

fn not_read(error: Errno) -> Ready {
    match error {
        Errno::AGAIN | Errno::INTR => Ready::Absent,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => Ready::Unknown,
        error => Ready::Failed(error),
    }
}

/// `struct cachestat_range` and `struct cachestat` of Linux 6.5.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cached {
    cached: u64,
    dirty: u64,
    written_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

const CACHESTAT: libc::c_long = 451;

/// Whether all pages of a range are in memory. A range beyond the file's end is not.
fn is_resident(file: BorrowedFd<'_>, begin: u64, length: u64) -> io::Result<bool> {
    let range = Range {
        offset: begin,
        length,
    };
    let mut cached = Cached::default();
    let nothing: libc::c_uint = 0;
    // SAFETY: the kernel reads `range` and writes `cached`, both as large as it expects, and keeps neither.
    let status = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut cached),
            nothing,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let pages = (begin + length).div_ceil(PAGE) - begin / PAGE;
    Ok(cached.cached >= pages)
}

const _: () = assert!(mem::size_of::<Cached>() == 40 && mem::size_of::<Range>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Lookup, Root};

    #[test]
    fn a_file_that_was_just_written_is_in_memory() {
        let place = tempfile::tempdir().expect("a directory");
        let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        std::fs::write(place.path().join("a"), &bytes).expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let Lookup::Found(file) = root.open_waiting(b"a") else {
            panic!("it is there");
        };
        let mut buffer = vec![0; COPIED];
        match look(&file, 0, 1000, false, false, &mut buffer) {
            Ready::Copied(length) => assert_eq!(buffer[..length], bytes[..length]),
            // A file system that cannot tell.
            other => assert_eq!(other, Ready::Unknown),
        }
        let large = look(&file, 0, 100_000, true, false, &mut buffer);
        let known = [
            Ready::Resident(100_000),
            Ready::Copied(COPIED),
            Ready::Unknown,
        ];
        assert!(known.contains(&large), "{large:?}");
        let behind = look(&file, 200_000, 200_100, true, false, &mut buffer);
        assert!(
            matches!(behind, Ready::Short | Ready::Unknown),
            "{behind:?}"
        );
        // As with a file of another user.
        file.hides_residency.store(true, Ordering::Relaxed);
        let hidden = look(&file, 10, 100_000, false, false, &mut buffer);
        let known = [Ready::Resident(99_990), Ready::Unknown];
        assert!(known.contains(&hidden), "{hidden:?}");
        let behind = look(&file, 200_000, 300_000, true, false, &mut buffer);
        assert!(
            matches!(behind, Ready::Short | Ready::Unknown),
            "{behind:?}"
        );
    }

    #[test]
    fn a_device_that_is_silent_is_asked_again_after_a_while() {
        assert!(!is_silent(u64::MAX));
        silence(u64::MAX);
        silence(u64::MAX - 1);
        assert!(is_silent(u64::MAX) && is_silent(u64::MAX - 1) && !is_silent(u64::MAX - 2));
        for (_, until) in SILENT.write().expect("a lock").iter_mut() {
            *until = Instant::now();
        }
        assert!(!is_silent(u64::MAX) && !is_silent(u64::MAX - 1));
        silence(u64::MAX);
        let silent = SILENT.read().expect("a lock");
        assert!(silent.iter().all(|(device, _)| *device != u64::MAX - 1));
    }

    #[test]
    fn as_much_as_the_buffers_pieces_have_room_for_is_touched() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), vec![7; 100_000]).expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let Lookup::Found(file) = root.open_waiting(b"a") else {
            panic!("it is there");
        };
        for (room, length, most) in [
            (COPIED, 100_000, 100_000),
            (COPIED, FORGOTTEN as u64, FORGOTTEN as u64),
            (1000, 90_001, 16_000),
            (1000, 15_001, 15_001),
            (1, 5, 5),
        ] {
            let touched = touch(&file, 0, length, &mut vec![0; room]);
            assert!(
                [Ready::Resident(most), Ready::Unknown].contains(&touched),
                "{room} {length}: {touched:?}"
            );
        }
    }
}
