//! Makes room for descriptors: fentry needs four per function, together more than a process may
//! usually have open.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::fcntl::{fcntl, FcntlArg};
use nix::sys::resource::{getrlimit, rlim_t, setrlimit, Resource};

const LIMIT: Resource = Resource::RLIMIT_NOFILE;

/// Raises this process's limit until it is dropped. Descriptors that were moved stay open after
/// that, and use none of the numbers below the old limit. If the limit cannot be raised far enough,
/// half of the possible descriptors may be used.
pub(super) struct DescriptorLimit {
    soft: rlim_t,
    hard: rlim_t,
    is_raised: bool,
    count: usize,
}

impl DescriptorLimit {
    /// Makes room for `wanted` descriptors, or for as many as possible.
    pub fn make(wanted: usize) -> io::Result<DescriptorLimit> {
        let (soft, hard) = getrlimit(LIMIT)?;
        let raised = soft.saturating_add(wanted as rlim_t);
        let is_raised = raised <= hard;
        if is_raised {
            setrlimit(LIMIT, raised, hard)?;
        }
        let half = usize::try_from(soft / 2).unwrap_or(wanted);
        Ok(DescriptorLimit {
            soft,
            hard,
            is_raised,
            count: if is_raised { wanted } else { wanted.min(half) },
        })
    }

    /// How many descriptors there is room for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Moves a descriptor into the additional room.
    pub fn take(&self, descriptor: OwnedFd) -> io::Result<OwnedFd> {
        if !self.is_raised {
            return Ok(descriptor);
        }
        let first = i32::try_from(self.soft).map_err(|_| io::ErrorKind::InvalidInput)?;
        let moved = fcntl(&descriptor, FcntlArg::F_DUPFD_CLOEXEC(first))?;
        // SAFETY: the call made the descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(moved) })
    }
}

impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        if self.is_raised {
            let _ = setrlimit(LIMIT, self.soft, self.hard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_was_moved_stays_open_beyond_the_limit() {
        let before = getrlimit(LIMIT).expect("a limit");
        let room = DescriptorLimit::make(4).expect("room");
        assert_eq!(room.count(), 4);
        let file = std::fs::File::open("/dev/null").expect("a file");
        let moved = room.take(file.into()).expect("it is moved");
        drop(room);
        assert_eq!(getrlimit(LIMIT).expect("a limit"), before);
        assert_eq!(
            moved.as_raw_fd() as rlim_t >= before.0,
            before.0 + 4 <= before.1
        );
        let flags = fcntl(&moved, FcntlArg::F_GETFD).expect("it is open");
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
