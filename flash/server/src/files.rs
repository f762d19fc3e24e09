// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files below a root. A loop opens them if the kernel's caches have the whole path; otherwise a helper does.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use rustix::fs::{
    openat2, statx, AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, CWD,
};
use rustix::io::Errno;

use crate::http::conditions::Validators;
use crate::mapping::Mapping;

/// Files and parts of files that are no longer are copied: they go out together with the head.
pub const SMALL: u64 = 32 << 10;
/// How often a path that changes while the kernel follows it is tried again before the answer is "busy".
const MAX_RACES: usize = 16;

/// Distinguishes the roots of all times.
static ROOTS: AtomicU64 = AtomicU64::new(0);

/// A directory whose files are served. Nothing above it is reached.
pub struct Root {
    directory: OwnedFd,
    pub number: u64,
    /// Where the directory is. What is mounted below it is elsewhere.
    pub device: u64,
    /// The files belong to this user, so reading them need not note the time of access.
    may_skip_access_time: AtomicBool,
}

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// An open file or directory.
pub struct File {
    pub fd: OwnedFd,
    pub id: FileId,
    pub kind: Kind,
    pub size: u64,
    pub validators: Validators,
    /// When its bytes or its state changed last: seconds since 1970, and nanoseconds.
    pub changed: (i64, u32),
    /// `cachestat` has been refused for it, or contradicted.
    pub hides_residency: AtomicBool,
    /// It has become shorter, so it serves no other request.
    pub is_stale: AtomicBool,
    /// Made when it is needed first.
    mapping: OnceLock<Option<Mapping>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    Other,
}

#[derive(Clone)]
pub enum Lookup {
    Found(Arc<File>),
    Missing,
    Forbidden,
    /// The system has no room, or something changes too fast.
    Busy,
    Failed(Errno),
}

impl Root {
    /// # Errors
    ///
    /// The directory cannot be opened; the error names it.
    pub fn open(path: &Path) -> Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .with_context(|| format!("cannot open the directory {}", path.display()))?;
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = statx(&directory, "", how, StatxFlags::BASIC_STATS)
            .with_context(|| format!("cannot look at the directory {}", path.display()))?;
        let root = Root {
            directory,
            number: ROOTS.fetch_add(1, Ordering::Relaxed),
            device: device(&status),
            may_skip_access_time: AtomicBool::new(true),
        };
        // Whether the call exists; what it finds does not matter.
        match root.open_with(b"", ResolveFlags::CACHED) {
            Err(Errno::NOSYS | Errno::INVAL) => anyhow::bail!(
                "this kernel has no openat2(RESOLVE_CACHED), by which flash opens files without waiting: \
                 that takes Linux 5.12 or later"
            ),
            Err(Errno::PERM) => anyhow::bail!(
                "openat2 is not permitted here: a container's seccomp profile has to allow it"
            ),
            _ => Ok(root),
        }
    }

    #[cfg(test)]
    pub fn pretend_device(self, device: u64) -> Root {
        Root { device, ..self }
    }

    /// Never waits. `None`: the kernel's caches do not have the whole path, or it was changed meanwhile.
    pub fn open_cached(&self, name: &[u8]) -> Option<Lookup> {
        match self.open_with(name, ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => None,
            opened => Some(self.lookup(opened)),
        }
    }

    /// Waits for the disk if it has to.
    pub fn open_waiting(&self, name: &[u8]) -> Lookup {
        self.lookup(self.open_patiently(name, ResolveFlags::empty()))
    }

    /// As `open_waiting`, but does not touch another device than the root's. `None`: the name is on one, or leads out of
    /// the root.
    pub fn open_on_device(&self, name: &[u8]) -> Option<Lookup> {
        match self.open_patiently(name, ResolveFlags::NO_XDEV) {
            Err(Errno::XDEV) => None,
            opened => Some(self.lookup(opened)),
        }
    }

    fn open_patiently(&self, name: &[u8], how: ResolveFlags) -> Result<OwnedFd, Errno> {
        for _ in 0..MAX_RACES {
            match self.open_with(name, how) {
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens with these flags, for another process. `is_cached`: never waits, and fails with `AGAIN` instead.
    ///
    /// # Errors
    ///
    /// Those of openat2.
    pub fn open_as(&self, name: &[u8], flags: OFlags, is_cached: bool) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { b"." } else { name };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let (how, tries) = match is_cached {
            true => (how | ResolveFlags::CACHED, 1),
            false => (how, MAX_RACES),
        };
        let flags = flags | OFlags::CLOEXEC;
        let open = || openat2(&self.directory, name, flags, Mode::empty(), how);
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..tries {
            opened = open();
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        opened
    }

    fn open_with(&self, name: &[u8], how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { b"." } else { name };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let how = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = |flags| openat2(&self.directory, name, flags, Mode::empty(), how);
        // The time of access is written to the inode, and that may wait for the journal.
        if self.may_skip_access_time.load(Ordering::Relaxed) {
            match open(flags | OFlags::NOATIME) {
                Err(Errno::PERM) => self.may_skip_access_time.store(false, Ordering::Relaxed),
                opened => return opened,
            }
        }
        open(flags)
    }

    fn lookup(&self, opened: Result<OwnedFd, Errno>) -> Lookup {
        match opened.and_then(File::of) {
            Ok(file) => Lookup::Found(Arc::new(file)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Lookup::Missing,
            Err(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV | Errno::NXIO) => {
                Lookup::Forbidden
            }
            Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Lookup::Busy,
            Err(error) => Lookup::Failed(error),
        }
    }
}

impl File {
    fn of(fd: OwnedFd) -> Result<File, Errno> {
        // What the inode in memory says: network file systems are not asked.
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = statx(&fd, "", how, StatxFlags::BASIC_STATS)?;
        let kind = match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::RegularFile => Kind::Regular,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        };
        Ok(File {
            fd,
            id: FileId {
                device: device(&status),
                inode: status.stx_ino,
            },
            kind,
            size: status.stx_size,
            validators: validators(&status),
            changed: (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
            hides_residency: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            mapping: OnceLock::new(),
        })
    }

    /// The same file, unchanged.
    pub fn is_same(&self, other: &File) -> bool {
        let is_same = self.id == other.id && self.size == other.size;
        is_same && self.validators == other.validators && !self.is_stale.load(Ordering::Relaxed)
    }

    /// `None`: it cannot be mapped.
    pub fn mapping(&self) -> Option<&Mapping> {
        let mapping = self
            .mapping
            .get_or_init(|| Mapping::of(self.fd.as_fd(), self.size));
        mapping.as_ref()
    }

    /// # Errors
    ///
    /// Those of statx.
    pub fn size_now(&self) -> Result<u64, Errno> {
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        Ok(statx(&self.fd, "", how, StatxFlags::SIZE)?.stx_size)
    }
}

fn device(status: &Statx) -> u64 {
    rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor)
}

fn validators(status: &Statx) -> Validators {
    let modified = status.stx_mtime;
    Validators {
        etag: format!(
            "\"{:x}.{:x}-{:x}\"",
            modified.tv_sec, modified.tv_nsec, status.stx_size
        ),
        modified: u64::try_from(modified.tv_sec).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn found(lookup: Lookup) -> Arc<File> {
        match lookup {
            Lookup::Found(file) => file,
            Lookup::Missing => panic!("missing"),
            Lookup::Forbidden => panic!("forbidden"),
            Lookup::Busy => panic!("busy"),
            Lookup::Failed(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_was_looked_up_once_needs_no_waiting() {
        let place = tempfile::tempdir().expect("a directory");
        fs::create_dir(place.path().join("a")).expect("room");
        fs::write(place.path().join("a/b"), "hello").expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let file = found(root.open_waiting(b"a/b"));
        assert_eq!((file.kind, file.size), (Kind::Regular, 5));
        let again = found(root.open_cached(b"a/b").expect("it is in the cache"));
        assert_eq!(again.validators, file.validators);
        assert!(matches!(root.open_waiting(b"a/none"), Lookup::Missing));
        assert!(matches!(root.open_cached(b"a/none"), Some(Lookup::Missing)));
        assert_eq!(found(root.open_waiting(b"")).kind, Kind::Directory);
        assert!(matches!(root.open_waiting(b"a/b/c"), Lookup::Missing));
    }

    #[test]
    fn what_is_mounted_below_is_left_to_others() {
        let root = Root::open(Path::new("/")).expect("it is there");
        let is_mounted = found(root.open_waiting(b"proc")).id.device != root.device;
        if is_mounted {
            assert!(root.open_on_device(b"proc").is_none());
            assert!(root.open_on_device(b"proc/version").is_none());
        }
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("a"), "").expect("room");
        let root = Root::open(place.path()).expect("it is there");
        found(root.open_on_device(b"a").expect("it is here"));
        assert!(matches!(
            root.open_on_device(b"none"),
            Some(Lookup::Missing)
        ));
    }

    #[test]
    fn links_lead_to_what_is_below_the_root_only() {
        let place = tempfile::tempdir().expect("a directory");
        fs::create_dir(place.path().join("root")).expect("room");
        fs::write(place.path().join("secret"), "").expect("room");
        fs::write(place.path().join("root/file"), "").expect("room");
        let root = Root::open(&place.path().join("root")).expect("it is there");
        for (name, to) in [
            ("in", "file"),
            ("out", "../secret"),
            ("abs", "/etc/passwd"),
            ("self", "self"),
        ] {
            symlink(to, place.path().join("root").join(name)).expect("room");
        }
        found(root.open_waiting(b"in"));
        for name in ["out", "abs", "self"] {
            let lookup = root.open_waiting(name.as_bytes());
            assert!(matches!(lookup, Lookup::Forbidden), "{name}");
        }
        assert!(matches!(root.open_waiting(b"../secret"), Lookup::Forbidden));
    }
}
