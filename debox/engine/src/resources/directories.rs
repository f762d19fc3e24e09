//! Paths of directories whose lock is waited for. The probes provide the path within the file system;
//! the process's mounts show where that is mounted.
//!
//! Nothing here may wait for such a lock itself, or for a file system that does not answer: paths are
//! followed only as far as the kernel has them cached.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{openat2, OFlag, OpenHow, ResolveFlag};
use procfs::process::Process;

use super::device::device;
use crate::tables::types;

/// The directory's path as seen by its process.
pub(super) fn find(seen: &types::directory_seen) -> Option<String> {
    if seen.is_whole == 0 {
        return None;
    }
    let bytes: Vec<u8> = seen.path.iter().map(|byte| *byte as u8).collect();
    let inside = path_inside(bytes.get(..seen.path_bytes as usize)?);
    let root = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(format!("/proc/{}/root", seen.tgid))
        .ok()?;
    let process = Process::new(i32::try_from(seen.tgid).ok()?).ok()?;
    let majmin = device(seen.resource.device);
    // The last mount is on top.
    let mounts = process.mountinfo().ok()?.0.into_iter().rev();
    mounts
        .filter(|mount| mount.majmin == majmin)
        .filter_map(|mount| below(&inside, Path::new(&mount.root), &mount.mount_point))
        .find(|path| {
            let found = open_remembered(root.as_fd(), path).and_then(|found| identity(&found));
            found == Some((seen.resource.device, seen.resource.id))
        })
        .map(|path| path.to_string_lossy().into_owned())
}

/// `/a/b` for "b\0a\0".
fn path_inside(components: &[u8]) -> PathBuf {
    let mut path = PathBuf::from("/");
    let names = components.split(|byte| *byte == 0);
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    path.extend(names.into_iter().rev().map(OsStr::from_bytes));
    path
}

/// Where a path of the file system appears, if it is below `root`, which is mounted at `point`.
fn below(path: &Path, root: &Path, point: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(root).ok()?;
    Some(match rest.as_os_str().is_empty() {
        true => point.to_path_buf(),
        false => point.join(rest),
    })
}

fn open_remembered(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let relative = path.strip_prefix("/").ok()?;
    let relative = match relative.as_os_str().is_empty() {
        true => Path::new("."),
        false => relative,
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED),
        );
    openat2(root, relative, how).ok()
}

/// Device (the kernel's number) and inode, without a request to a file server.
fn identity(file: &OwnedFd) -> Option<(u32, u64)> {
    let empty = CString::default();
    // SAFETY: statx is plain data, for which all zeroes are a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: `found` and the empty path are valid for the call.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            libc::STATX_INO,
            &mut found,
        )
    };
    let number = found.stx_dev_major << 20 | found.stx_dev_minor;
    (result == 0).then_some((number, found.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &Path) -> types::directory_seen {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).unwrap();
        let mut seen = types::directory_seen {
            tgid: std::process::id(),
            is_whole: 1,
            ..types::directory_seen::default()
        };
        seen.resource.device = libc::major(metadata.dev()) << 20 | libc::minor(metadata.dev());
        seen.resource.id = metadata.ino();
        seen
    }

    fn write_path(seen: &mut types::directory_seen, inside: &str) {
        for name in inside.split('/').rev().filter(|name| !name.is_empty()) {
            for byte in name.bytes().chain([0]) {
                seen.path[seen.path_bytes as usize] = byte as _;
                seen.path_bytes += 1;
            }
        }
    }

    #[test]
    fn a_directory_of_this_process_is_found() {
        let mut directory = seen(Path::new("/proc"));
        assert_eq!(find(&directory).as_deref(), Some("/proc"));
        directory.resource.id += 1;
        assert_eq!(find(&directory), None, "another inode");
        directory.resource.id -= 1;
        directory.is_whole = 0;
        assert_eq!(find(&directory), None);
    }

    #[test]
    fn the_path_within_its_file_system_is_followed() {
        let own = Process::myself().unwrap().mountinfo().unwrap();
        let shared = Path::new("/dev/shm");
        if !own.0.iter().any(|mount| mount.mount_point == shared) {
            return; // not a file system that is sure to have its paths cached
        }
        let inside = format!("/debox-{}/inner", std::process::id());
        let path = format!("/dev/shm{inside}");
        std::fs::create_dir_all(&path).unwrap();
        let mut directory = seen(Path::new(&path));
        write_path(&mut directory, &inside);
        let found = find(&directory);
        std::fs::remove_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        assert_eq!(found, Some(path));
    }

    #[test]
    fn a_path_is_below_what_its_mount_shows() {
        let below = |path: &str, root: &str, point: &str| {
            below(Path::new(path), Path::new(root), Path::new(point))
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(below("/a/b", "/", "/mnt"), path("/mnt/a/b"));
        assert_eq!(below("/a/b", "/a", "/mnt"), path("/mnt/b"));
        assert_eq!(below("/a", "/a", "/mnt"), path("/mnt"));
        assert_eq!(below("/ab", "/a", "/mnt"), None);
        assert_eq!(path_inside(b"c\0b\0a\0"), PathBuf::from("/a/b/c"));
        assert_eq!(path_inside(b""), PathBuf::from("/"));
    }
}
