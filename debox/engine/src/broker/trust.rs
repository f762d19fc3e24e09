//! Which processes a program accepts as the broker: root's, or those of its own user.
//!
//! In a user namespace, all users without a mapping, including the machine's root, appear as the same id
//! (65534), so that id proves nothing. There, the path of the socket is the proof: only root, or the
//! creator of the namespace's files, can have made the directories of the default path. A broker at any
//! other path is accepted only if its user has a mapping.
//!
//! Nothing here allocates: a signal handler may look for a broker.

use std::ffi::CStr;
use std::path::Path;

use super::address::SOCKET;

/// The directories of [`SOCKET`].
const PLACE: [&CStr; 3] = [c"/", c"/run", c"/run/debox"];

/// Whether a broker of this user, at this path, may determine what this process maps.
pub(super) fn is_trusted(user: u32, path: &Path) -> bool {
    if is_nameless(user) {
        return path == Path::new(SOCKET) && PLACE.iter().all(|place| is_roots(place, user));
    }
    user == 0 || user == own_user()
}

/// Whether this id may stand for any of the users without a mapping here.
pub(super) fn is_nameless(user: u32) -> bool {
    let mut room = [0; 4096];
    let overflow = read(c"/proc/sys/kernel/overflowuid", &mut room).and_then(number);
    if user != overflow.unwrap_or(65534) {
        return false;
    }
    let map = read(c"/proc/self/uid_map", &mut room);
    !map.is_some_and(has_all_users)
}

/// Whether all users have a mapping, according to a process's `uid_map`.
fn has_all_users(map: &[u8]) -> bool {
    const ALL: u64 = u32::MAX as u64;
    let lines = map.split(|byte| *byte == b'\n');
    let counts = lines.filter_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace);
        let last = words.rfind(|word| !word.is_empty());
        last.and_then(number)
    });
    counts.fold(0u64, |sum, count| sum.saturating_add(count.into())) >= ALL
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The first bytes of a file, as many as there is room for.
fn read<'a>(path: &CStr, room: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: a valid C string; the descriptor is closed below.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the buffer has room for the requested bytes, and the descriptor belongs to this function.
    let got = unsafe {
        let got = libc::read(fd, room.as_mut_ptr().cast(), room.len());
        libc::close(fd);
        got
    };
    usize::try_from(got).ok().map(|got| &room[..got])
}

/// Whether only root, which may appear as that id, or this process's own user can have created something
/// there.
fn is_roots(place: &CStr, nameless: u32) -> bool {
    // SAFETY: all zeros are a valid value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a valid C string, and a place to write to.
    if unsafe { libc::lstat(place.as_ptr(), &mut found) } != 0 {
        return false;
    }
    let is_directory = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let is_closed = found.st_mode & 0o022 == 0;
    is_directory && is_closed && [0, own_user(), nameless].contains(&found.st_uid)
}

fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_all_users_has_no_nameless_ones() {
        assert!(has_all_users(b"         0          0 4294967295\n"));
        assert!(has_all_users(b"0 100000 65536\n65536 165536 4294901759\n"));
        assert!(!has_all_users(b"         0       1000          1\n"));
        assert!(!has_all_users(b"0 1000 1\n1 100000 65536\n"));
        assert!(!has_all_users(b""));
        assert!(!has_all_users(b"0 0 many\n\xff"));
    }

    #[test]
    fn only_root_and_the_own_user_are_believed() {
        let path = Path::new("/tmp/broker.sock");
        let own = own_user();
        assert!(is_trusted(0, path) && is_trusted(own, path));
        assert!(!is_trusted(own + 1, path));
    }

    #[test]
    fn a_place_that_others_can_change_is_not_roots() {
        assert!(is_roots(c"/", 65534));
        assert!(
            !is_roots(c"/tmp", 65534),
            "a directory that all can write to"
        );
        assert!(!is_roots(c"/etc/passwd", 65534), "a file");
        assert!(!is_roots(c"/there/is/no/such/thing", 65534));
    }
}
