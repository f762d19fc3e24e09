//! The descriptors that a session of the process's own holds, and whether they still stand for the same objects.
//!
//! A program may close all descriptors that it does not know (`closefrom(3)`, `close_range(2)`) and open files of
//! its own under the same numbers. Those must not be closed here: each number is closed only if the kernel reports
//! the same object for it.

use std::collections::BTreeSet;

use libbpf_rs::libbpf_sys;

/// What the kernel reports about a map, a program, a link or types: its id and other constant fields. Other files
/// have no identity.
type Identity = [u8; 32];

/// How many numbers are tried if `/proc` is not mounted.
const TRIED: i32 = 4096;

#[derive(Default)]
pub(super) struct Descriptors(Vec<(i32, Identity)>);

/// The process's open descriptors.
pub(super) fn open_now() -> BTreeSet<i32> {
    let listed = std::fs::read_dir("/proc/self/fd").map(|entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok()).collect()
    });
    // SAFETY: F_GETFD only reads.
    let is_open = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    listed.unwrap_or_else(|_| (0..TRIED).filter(is_open).collect())
}

fn identity_of(fd: i32) -> Option<Identity> {
    let mut info = [0u8; 256];
    let mut length = info.len() as u32;
    // SAFETY: `info` has room for so many bytes; zeros ask for no lists.
    let failed =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, info.as_mut_ptr().cast(), &mut length) };
    (failed == 0).then(|| info[..32].try_into().expect("32 bytes"))
}

impl Descriptors {
    pub const fn new() -> Descriptors {
        Descriptors(Vec::new())
    }

    /// Adds the BPF objects that have been opened since. If another thread opens one at the same time, the worst
    /// outcome is that it is closed with the others when the session has been damaged.
    pub fn add_since(&mut self, before: &BTreeSet<i32>) {
        let new = open_now();
        let new = new.difference(before);
        self.0
            .extend(new.filter_map(|fd| Some((*fd, identity_of(*fd)?))));
    }

    /// The lowest and the highest number; an empty range if nothing is held.
    pub fn span(&self) -> (i32, i32) {
        let numbers = || self.0.iter().map(|(fd, _)| *fd);
        (numbers().min().unwrap_or(0), numbers().max().unwrap_or(-1))
    }

    /// Whether all of them still stand for the same objects.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(is_same)
    }

    /// Closes those that still stand for the same objects.
    pub fn close_same(self) {
        for held in self.0.iter().filter(|held| is_same(held)) {
            // SAFETY: nothing that owns the descriptor is dropped any more.
            unsafe { libc::close(held.0) };
        }
    }
}

fn is_same((fd, identity): &(i32, Identity)) -> bool {
    identity_of(*fd).as_ref() == Some(identity)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn other_files_are_not_held() {
        let before = open_now();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut held = Descriptors::default();
        held.add_since(&before);
        // Other tests of this process may have opened some at the same time.
        held.0.retain(|(fd, _)| *fd == file.as_raw_fd());
        assert!(held.0.is_empty() && held.is_whole());
        assert_eq!(held.span(), (0, -1));
        held.close_same();
        assert!(file.metadata().is_ok());
    }
}
