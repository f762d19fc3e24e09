// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on files, and nothing besides: the standard library copies each name, and what the kernel says of a file, which takes
//! as long as a tenth of a call.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name as the kernel takes it.
///
/// # Errors
///
/// It contains a zero.
pub fn name(of: &Path) -> io::Result<CString> {
    CString::new(of.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// The inode of a file, by its name.
pub fn stat(path: &CStr) -> io::Result<u64> {
    // SAFETY: all fields may be zero.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero, and the kernel writes the structure.
    match unsafe { libc::stat(path.as_ptr(), &mut found) } {
        0 => Ok(found.st_ino),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The inode of an open file.
pub fn fstat(file: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: all fields may be zero.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    match unsafe { libc::fstat(file.as_raw_fd(), &mut found) } {
        0 => Ok(found.st_ino),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a file for reading.
pub fn open(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero.
    match unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it is new, and nobody else's.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn all_see_the_file_that_the_standard_library_sees() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let inode = file.as_file().metadata().expect("an inode").ino();
        let path = name(file.path()).expect("a name");
        assert_eq!(stat(&path).expect("it is there"), inode);
        let open = open(&path).expect("it may be read");
        assert_eq!(fstat(open.as_fd()).expect("it is open"), inode);
        let missing = name(&file.path().with_extension("missing")).expect("a name");
        assert!(stat(&missing).is_err() && super::open(&missing).is_err());
        assert!(name(Path::new("a\0b")).is_err());
    }
}
