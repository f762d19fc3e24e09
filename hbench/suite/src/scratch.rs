// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary files of a sample. They are below a directory that the run removes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::benchmark::{Available, Failure};
use crate::sys;

/// Eight bytes of a file that [`file`] has filled with ones.
pub const WORD: u64 = 0x0101_0101_0101_0101;

/// A file without a name, with so many bytes of this value, open for reading and writing.
pub fn file(directory: &Path, bytes: usize, value: u8) -> Result<File, Failure> {
    let mut file = tempfile::tempfile_in(directory).available("create a temporary file")?;
    fill(&mut file, bytes, value)?;
    Ok(file)
}

fn fill(file: &mut File, bytes: usize, value: u8) -> Result<(), Failure> {
    let block = vec![value; bytes.min(1 << 20)];
    for from in (0..bytes).step_by(block.len().max(1)) {
        let rest = block.len().min(bytes - from);
        file.write_all(&block[..rest])
            .available("write a temporary file")?;
    }
    Ok(())
}

/// The path of a file, some directories down, and its inode.
pub fn named(directory: &Path) -> Result<(PathBuf, u64), Failure> {
    let below = directory.join("some").join("directories").join("down");
    fs::create_dir_all(&below).available("create a temporary directory")?;
    let path = below.join("file");
    let file = File::create(&path).available("create a temporary file")?;
    let inode = file.metadata().available("look at a temporary file")?.ino();
    Ok((path, inode))
}

/// Refuses a directory whose files are only in memory.
pub fn on_disk(directory: &Path) -> Result<(), Failure> {
    match sys::file_system_magic(directory) {
        Some(sys::TMPFS) => {
            let reason =
                "files on tmpfs are nowhere stored: name a directory on a disk with --directory";
            Err(Failure::Unavailable(reason.to_string()))
        }
        _ => Ok(()),
    }
}

/// The path of a file with a name, with so many bytes of this value.
pub fn named_file(directory: &Path, bytes: usize, value: u8) -> Result<PathBuf, Failure> {
    let path = directory.join("content");
    let mut file = File::create(&path).available("create a temporary file")?;
    fill(&mut file, bytes, value)?;
    Ok(path)
}

/// Has the kernel forget what it has cached of names, inodes and clean pages: of everybody's.
pub fn drop_caches(is_allowed: bool) -> Result<(), Failure> {
    if !is_allowed {
        let reason = "dropping the kernel's caches slows every program of the machine: allow it with --cold, as root";
        return Err(Failure::Unavailable(reason.to_string()));
    }
    // What is dirty would stay.
    // SAFETY: no memory is passed.
    unsafe { libc::sync() };
    fs::write("/proc/sys/vm/drop_caches", "3").available("drop the kernel's caches, as root")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn files_have_their_size_and_content() {
        let directory = tempfile::tempdir().expect("a directory");
        let made = file(directory.path(), (1 << 20) + 8, 1).expect("room");
        let mut word = [0; 8];
        made.read_exact_at(&mut word, 1 << 20).expect("it is there");
        assert_eq!(u64::from_ne_bytes(word), WORD);
        assert_eq!(made.metadata().expect("it is there").len(), (1 << 20) + 8);
        let (path, inode) = named(directory.path()).expect("room");
        assert_eq!(fs::metadata(path).expect("it is there").ino(), inode);
        let path = named_file(directory.path(), 9, 7).expect("room");
        assert_eq!(fs::read(path).expect("it is there"), [7; 9]);
    }
}
