//! Opens files that monitored processes name. They may be another user's, who can replace them by anything:
//! a FIFO, a device with side effects when it is opened, or a link to one of those or to root's files.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{openat2, OFlag, OpenHow, ResolveFlag};

/// Which symbolic links are followed, as the process itself would follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links in the directories of the path.
    OnTheWay,
    /// None: the kernel gave the path.
    No,
}

/// Opens a directory, to open files below it.
pub(crate) fn directory(path: &Path) -> Option<File> {
    look(path, libc::O_DIRECTORY)
}

/// Opens a regular file below a directory, which acts as the file's root.
pub(crate) fn open_below(root: &File, path: &Path, links: Links) -> Option<File> {
    let links = match links {
        Links::OnTheWay => ResolveFlag::RESOLVE_NO_MAGICLINKS,
        Links::No => ResolveFlag::RESOLVE_NO_SYMLINKS,
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | links);
    let found = openat2(root.as_fd(), path, how).ok()?;
    open_found(&File::from(found))
}

/// Finds what a path leads to, without opening it: this has no side effects and does not wait.
pub(crate) fn find(path: &Path) -> Option<File> {
    look(path, 0)
}

/// Opens a file that was found, if it is a regular file and not one of the kernel's own, whose length is 0
/// (`/proc/kmsg`).
pub(crate) fn open_found(found: &File) -> Option<File> {
    let metadata = found.metadata().ok()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return None;
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let mut how = File::options();
    how.read(true).custom_flags(libc::O_NONBLOCK);
    how.open(path).ok()
}

fn look(path: &Path, flags: i32) -> Option<File> {
    let mut how = File::options();
    how.read(true).custom_flags(libc::O_PATH | flags);
    how.open(path).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_by_no_link_and_below_their_root() {
        let place = tempfile::tempdir().expect("a directory");
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("root")).unwrap();
        for name in ["outside", "root/plain"] {
            std::fs::write(at(name), "x").unwrap();
        }
        std::fs::write(at("root/empty"), "").unwrap();
        symlink("plain", at("root/link")).unwrap();
        symlink("/", at("root/way")).unwrap();
        symlink(at("outside"), at("root/out")).unwrap();
        symlink("/dev/null", at("root/device")).unwrap();
        let fifo = std::ffi::CString::new(at("root/fifo").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let root = directory(&at("root")).expect("a directory");
        let opens = |name: &str, links| open_below(&root, name.as_ref(), links).is_some();
        for links in [Links::OnTheWay, Links::No] {
            assert!(opens("plain", links) && opens("/plain", links));
            for name in [
                "link",
                "out",
                "device",
                "fifo",
                "empty",
                "../outside",
                "none",
                ".",
            ] {
                assert!(!opens(name, links), "{name} {links:?}");
            }
        }
        assert!(opens("way/plain", Links::OnTheWay) && !opens("way/plain", Links::No));
        assert!(find(&at("root/fifo")).is_some_and(|found| open_found(&found).is_none()));
    }
}
