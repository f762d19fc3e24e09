// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens what clients ask for. A helper waits for the disk until name, inode and the first bytes are in memory.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    fadvise, fcntl_getfl, fcntl_setfl, statx, Advice, AtFlags, FileType, OFlags, Statx, StatxFlags,
};
use rustix::io::{pread, preadv2, Errno, ReadWriteFlags};

use super::protocol::{flag, Kind};
use crate::files::Root;

/// A helper waits for so much of a file, and has the kernel read more of it meanwhile.
const FIRST: usize = 64 << 10;
const AHEAD: u64 = 512 << 10;

/// How a name is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    pub kind: Kind,
    /// Of the protocol.
    pub flags: u32,
}

/// What was opened for one client. The descriptor has its own offset.
pub struct Opened {
    pub fd: OwnedFd,
    pub status: Statx,
}

/// What a helper has done.
pub struct Brought {
    pub opened: Result<Opened, Errno>,
    /// Keeps name and inode in memory as long as it is there.
    pub pin: Option<OwnedFd>,
}

impl How {
    fn open_flags(self) -> OFlags {
        let mut flags = match self.kind {
            // A pipe without a writer must not be waited for.
            Kind::Open => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
            Kind::Stat => OFlags::PATH,
        };
        for (bit, is) in [
            (flag::NOFOLLOW, OFlags::NOFOLLOW),
            (flag::DIRECTORY, OFlags::DIRECTORY),
            (flag::NOATIME, OFlags::NOATIME),
        ] {
            // O_NOATIME does not go with O_PATH, which reads nothing.
            if self.flags & bit != 0 && (bit != flag::NOATIME || self.kind == Kind::Open) {
                flags |= is;
            }
        }
        flags
    }

    fn finish(self, fd: OwnedFd) -> Result<Opened, Errno> {
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = statx(&fd, "", how, StatxFlags::BASIC_STATS)?;
        if self.kind == Kind::Open {
            let kind = FileType::from_raw_mode(status.stx_mode.into());
            // Opening anything else can do something, and clients may have to wait for it: they do it themselves.
            if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                return Err(Errno::OPNOTSUPP);
            }
            if self.flags & flag::NONBLOCK == 0 {
                let flags = fcntl_getfl(&fd)?;
                fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
            }
        }
        Ok(Opened { fd, status })
    }

    /// Never waits. `None`: something is not in memory.
    pub fn open_cached(
        self,
        root: &Root,
        name: &[u8],
        scratch: &mut [u8],
    ) -> Option<Result<Opened, Errno>> {
        let opened = match root.open_as(name, self.open_flags(), true) {
            Err(Errno::AGAIN) => return None,
            opened => opened.and_then(|fd| self.finish(fd)),
        };
        match opened {
            Ok(opened) if !self.is_in_memory(&opened, scratch) => None,
            opened => Some(opened),
        }
    }

    fn is_in_memory(self, opened: &Opened, scratch: &mut [u8]) -> bool {
        let length = match self.kind {
            Kind::Open => first_bytes(&opened.status),
            Kind::Stat => 0,
        };
        let most = length.min(scratch.len());
        if most == 0 {
            return true;
        }
        let mut parts = [std::io::IoSliceMut::new(&mut scratch[..most])];
        match preadv2(&opened.fd, &mut parts, 0, ReadWriteFlags::NOWAIT) {
            Ok(read) => read == most,
            Err(Errno::AGAIN | Errno::INTR) => false,
            // The file system does not tell; the client finds out.
            Err(_) => true,
        }
    }

    /// Waits until it is in memory. `asked`: all that it needs has been asked for.
    pub fn bring(
        self,
        root: &Root,
        name: &[u8],
        scratch: &mut [u8],
        asked: impl FnOnce(),
    ) -> Brought {
        let opened = root.open_as(name, self.open_flags(), false);
        let opened = opened.and_then(|fd| self.finish(fd));
        if let (Kind::Open, Ok(opened)) = (self.kind, &opened) {
            read_first(&opened.fd, first_bytes(&opened.status), scratch, asked);
        }
        let nofollow = self.open_flags() & OFlags::NOFOLLOW;
        let pin = match &opened {
            Ok(_) => root.open_as(name, OFlags::PATH | nofollow, true).ok(),
            Err(_) => None,
        };
        Brought { opened, pin }
    }
}

fn first_bytes(status: &Statx) -> usize {
    match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::RegularFile => usize::try_from(status.stx_size).map_or(FIRST, |n| n.min(FIRST)),
        _ => 0,
    }
}

/// What cannot be read, the client will find out.
fn read_first(fd: impl AsFd, length: usize, scratch: &mut [u8], asked: impl FnOnce()) {
    let _ = fadvise(&fd, 0, std::num::NonZeroU64::new(AHEAD), Advice::WillNeed);
    asked();
    let mut at = 0;
    while at < length {
        let here = scratch.len().min(length - at);
        match pread(&fd, &mut scratch[..here], at as u64) {
            Ok(0) => return,
            Ok(read) => at += read,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;

    fn how(kind: Kind, flags: u32) -> How {
        How { kind, flags }
    }

    #[test]
    fn a_descriptor_has_the_flags_that_were_asked_for() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("a"), "hello").expect("room");
        fs::create_dir(place.path().join("d")).expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let mut scratch = vec![0; FIRST];
        for flags in [0, flag::NONBLOCK] {
            let brought = how(Kind::Open, flags).bring(&root, b"a", &mut scratch, || {});
            let opened = brought.opened.expect("it is there");
            assert!(brought.pin.is_some());
            let has = fcntl_getfl(&opened.fd).expect("it is open");
            assert_eq!(has.contains(OFlags::NONBLOCK), flags != 0);
            let mut text = String::new();
            fs::File::from(opened.fd)
                .read_to_string(&mut text)
                .expect("readable");
            assert_eq!(text, "hello");
        }
        let cached = how(Kind::Open, 0).open_cached(&root, b"a", &mut scratch);
        assert_eq!(cached.expect("cached").expect("there").status.stx_size, 5);
        let error = |flags, name: &[u8]| {
            let brought = how(Kind::Open, flags).bring(&root, name, &mut vec![0; FIRST], || {});
            brought.opened.map(drop).expect_err("not so")
        };
        assert_eq!(error(flag::DIRECTORY, b"a"), Errno::NOTDIR);
        assert_eq!(error(0, b"none"), Errno::NOENT);
        assert_eq!(error(0, b"../x"), Errno::XDEV);
        std::os::unix::fs::symlink("a", place.path().join("l")).expect("room");
        assert_eq!(error(flag::NOFOLLOW, b"l"), Errno::LOOP);
        let link = how(Kind::Stat, flag::NOFOLLOW).bring(&root, b"l", &mut scratch, || {});
        let mode = link.opened.expect("there").status.stx_mode;
        assert_eq!(FileType::from_raw_mode(mode.into()), FileType::Symlink);
        let pipe = place.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("room");
        assert_eq!(error(0, b"pipe"), Errno::OPNOTSUPP);
    }
}
