// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on files, and nothing besides: the standard library also copies the name and what the kernel says of the file, a fifth of
//! the time of a `stat`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

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
    Ok(nix::sys::stat::stat(path)?.st_ino)
}

/// The inode of an open file.
pub fn fstat(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(file)?.st_ino)
}

/// Opens a file for reading.
pub fn open(path: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
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
