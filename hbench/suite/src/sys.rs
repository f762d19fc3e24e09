// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that the standard library does not have, made safe.

pub mod file;
mod memory;
mod process;
mod random;
mod semaphore;
mod signal;
mod wait;

pub use memory::{Chains, Chunk, Link, Mapping};
pub use process::{affinity, bind_to_cpu, fork_and_wait, ppid, Peer, Program};
pub use random::{drand48, lrand48, rand, random};
pub use semaphore::Semaphores;
pub use signal::{install_handler, raise, Faults, IntervalTimer, SIGNALS};
pub use wait::{
    futex_wait, futex_wake, nanosleep, poll, pselect_sleep, select, select_sleep, Epoll, EventFd,
};

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `clock_gettime(CLOCK_MONOTONIC_RAW)`.
#[inline(always)]
pub fn monotonic_raw_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long the calling thread was ready and had no CPU. `None`: the kernel does not count this.
pub fn runqueue_ns() -> Option<u64> {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counted.split_whitespace().nth(1)?.parse().ok()
}

/// The kernel copies from the file, from its beginning, to the other descriptor.
pub fn sendfile(to: BorrowedFd<'_>, from: &std::fs::File, bytes: usize) -> std::io::Result<usize> {
    let mut offset: libc::off_t = 0;
    // SAFETY: the kernel writes the offset, which lives long enough.
    let sent = unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &mut offset, bytes) };
    usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())
}

/// `linux/magic.h`.
pub const TMPFS: u32 = 0x0102_1994;

/// Whether a page of this process's own file is in the page cache. Unknown counts as no. `preadv2(RWF_NOWAIT)` would begin
/// to read the page.
pub fn is_resident(file: &std::fs::File, offset: u64) -> bool {
    const PAGE: usize = 4096;
    let mut found = 0u8;
    // SAFETY: a new mapping, which nothing accesses; the kernel writes one byte for its one page.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as libc::off_t,
        );
        if place == libc::MAP_FAILED {
            return false;
        }
        let asked = libc::mincore(place, PAGE, &mut found);
        libc::munmap(place, PAGE);
        asked == 0 && found & 1 != 0
    }
}

/// The number by which the kernel names the file system that a path lies on (`statfs`).
pub fn file_system_magic(path: &std::path::Path) -> Option<u32> {
    let path = file::name(path).ok()?;
    // SAFETY: all fields may be zero.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the kernel writes the structure.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut found) };
    // The numbers have 32 bits, and the field is wider on some architectures.
    (result == 0).then_some(found.f_type as u32)
}

/// Has the kernel drop the file's pages that are clean.
pub fn drop_pages(of: &std::fs::File) -> std::io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fadvise(of.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Locks a byte of a file for this process by `fcntl`, or unlocks it. Waits while another process has locked it.
pub fn lock_byte(file: &std::fs::File, at: i64, is_locked: bool) -> std::io::Result<()> {
    let kind = match is_locked {
        true => libc::F_WRLCK,
        false => libc::F_UNLCK,
    };
    // SAFETY: all fields may be zero.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at as libc::off_t;
    lock.l_len = 1;
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &lock) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A named pipe, which only this user may open.
pub fn make_fifo(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero.
    match unsafe { libc::mkfifo(path.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A socket that is not connected.
pub fn tcp_socket() -> std::io::Result<OwnedFd> {
    socket(libc::AF_INET)
}

pub fn unix_socket() -> std::io::Result<OwnedFd> {
    socket(libc::AF_UNIX)
}

fn socket(family: libc::c_int) -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and a descriptor that is made is this function's alone.
    unsafe {
        match libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            made if made >= 0 => Ok(OwnedFd::from_raw_fd(made)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Closing the connection ends it at once, and frees its port.
pub fn reset_on_close(connection: BorrowedFd<'_>) -> std::io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set_option(connection, libc::SO_LINGER, &linger)
}

/// How much may be on its way in each direction; the kernel may allow less.
pub fn set_buffers(connection: BorrowedFd<'_>, bytes: usize) -> std::io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(connection, libc::SO_SNDBUF, &bytes)?;
    set_option(connection, libc::SO_RCVBUF, &bytes)
}

fn set_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> std::io::Result<()> {
    // SAFETY: the kernel reads the value, which is as long as it is told.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
