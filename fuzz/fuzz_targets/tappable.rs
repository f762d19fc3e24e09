//! A program of which `debox run --tap user` must know whether the tap works in it.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

#[path = "../../crates/debox-cli/src/tappable.rs"]
mod tappable;

/// No program is looked for in the directories of this machine.
mod command {
    pub fn find(name: &std::ffi::OsStr) -> anyhow::Result<std::path::PathBuf> {
        Ok(name.into())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // SAFETY: the name is a valid C string; the new descriptor is owned by nobody else.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"debox-any-program".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "no memory file");
        File::from_raw_fd(fd)
    };
    file.write_all(bytes).expect("memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if let Err(refusal) = tappable::require_tappable(&path) {
        assert!(!refusal.to_string().is_empty());
    }
});
