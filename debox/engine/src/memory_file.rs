//! Memory files (memfd), for mappings that this process shares with others.
//!
//! A memory file has mode 0777 by default, and seals protect only its content: any process with a descriptor
//! could set extended attributes on it, which are kernel memory that stays as long as the file, or open it
//! again for writing. So the mode gives other users no write permission; where they may write, they do so
//! through the descriptor that they are given.

use std::ffi::CStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;

/// Any process with a descriptor can read.
pub(crate) const READ_BY_ALL: u32 = 0o444;
/// Only the owner can open it again.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// A memory file of that many bytes, all zero, open for reading and writing, that can be sealed.
pub(crate) fn create(name: &CStr, length: u64, mode: u32) -> io::Result<File> {
    // A file that can never be executed needs Linux 6.3; it can also be sealed.
    let flags = [libc::MFD_NOEXEC_SEAL, libc::MFD_ALLOW_SEALING];
    let mut made = -1;
    for flag in flags {
        // SAFETY: the name is a C string.
        made = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flag) };
        if made >= 0 {
            break;
        }
    }
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let file = unsafe { File::from_raw_fd(made) };
    file.set_permissions(Permissions::from_mode(mode))?;
    file.set_len(length)?;
    Ok(file)
}

/// Opens a file again, for reading only. A descriptor that is passed on shares the open file's state with
/// this process: its position and flags, and locks (`F_OFD_SETLK`), which are kernel memory that stays until
/// the last descriptor is closed. The state of a newly opened file is released with its own holders.
pub(crate) fn open_for_reading(file: BorrowedFd) -> io::Result<File> {
    open_again(file, OpenOptions::new().read(true))
}

/// The same, for reading and writing.
pub(crate) fn open_for_writing(file: BorrowedFd) -> io::Result<File> {
    open_again(file, OpenOptions::new().read(true).write(true))
}

fn open_again(file: BorrowedFd, how: &OpenOptions) -> io::Result<File> {
    how.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Adds seals (`F_SEAL_...`), and forbids adding others.
pub(crate) fn seal(file: &File, seals: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    match unsafe {
        libc::fcntl(
            file.as_raw_fd(),
            libc::F_ADD_SEALS,
            seals | libc::F_SEAL_SEAL,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
