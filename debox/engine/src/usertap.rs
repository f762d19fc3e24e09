//! The session's side of the user tap: gives processes their slots, keeps their clock, and reads the rows in
//! which they count their calls.
//!
//! Processes find the session through a socket in a directory of its own. Their environment has its path and a
//! secret by which they recognise the session: in a user namespace, the kernel does not reveal the server's user.
//! The session identifies a process by the descriptor that the kernel provides for the peer. The socket can be
//! reached from wherever the shim's file can, and from any network namespace; processes that leave both behind
//! (`chroot`, another mount namespace) map everything first.
//!
//! The layouts are those of `debox/include/debox_tap.h` and `debox/preload/c/attach.h`.

mod rows;

use std::fs::Permissions;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{
    self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr,
};

use crate::broker::cpu::{self, Pace, Share};
use crate::broker::peer::Peer;
use crate::clock::TapClock;
use crate::directory::SessionDirectory;
use crate::kernel::objects;
use crate::memory_file;
use crate::random;

pub(crate) use rows::{TapRows, TABLE};

const VERSION: u32 = 1;
const PREFIX: &str = "debox-tap-";
const SOCKET: &str = "socket";
/// The CPU time for refusing peers.
const REFUSALS: Share = Share {
    rate: 0.1,
    burst: 0.02,
};

/// The address of a session, in the environment of its processes: how many seccomp filters the session is under
/// and, if the shim's own calls to find it are recorded, a `+`; then the secret; then the path. `parse_address`
/// of attach.c parses the same format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub filters: u32,
    pub sees_calls: bool,
    pub secret: u64,
    pub path: PathBuf,
}

impl Address {
    pub fn parse(text: &str) -> Option<Address> {
        let mut parts = text.splitn(3, ':');
        let (filters, secret, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (filters, sees_calls) = match filters.strip_suffix('+') {
            Some(filters) => (filters, true),
            None => (filters, false),
        };
        let is_number = filters.bytes().all(|digit| digit.is_ascii_digit());
        let is_hex = secret.len() == 16 && secret.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_path = path.starts_with('/');
        (is_number && is_hex && is_path).then_some(Address {
            filters: filters.parse().ok()?,
            sees_calls,
            secret: u64::from_str_radix(secret, 16).ok()?,
            path: path.into(),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seen = if self.sees_calls { "+" } else { "" };
        let path = self.path.display();
        write!(f, "{}{seen}:{:016x}:{path}", self.filters, self.secret)
    }
}

/// Answers processes that ask for their session.
pub(crate) struct TapServer {
    /// An [`Address`], for the environment.
    pub address: String,
    pub rows: TapRows,
    clock: TapClock,
    listener: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The socket's directory.
    _directory: SessionDirectory,
}

/// The session's answer to one of its processes.
struct Welcome {
    slots: u32,
    secret: u64,
    /// Descriptors of slots, thread ids and rows.
    fds: [RawFd; 3],
}

impl TapServer {
    /// `slots_fd` and `tids_fd` are the maps to pass on; `is_monitored` returns whether a process belongs to the
    /// session. `sees_calls`: the session also records the shim's own calls to find it.
    pub fn start(
        slots: u32,
        slots_fd: RawFd,
        tids_fd: RawFd,
        sees_calls: bool,
        is_monitored: impl Fn(&Peer) -> bool + Send + 'static,
    ) -> Result<TapServer> {
        let rows = TapRows::create(slots)?;
        let clock = TapClock::start(&rows.file)?;
        let directory = make_directory()?;
        let path = directory.path().join(SOCKET);
        let listener = listen(&path)?;
        let listener = Arc::new(listener);
        let secret = random::random()?;
        let address = Address {
            filters: seccomp_filters(),
            sees_calls,
            secret,
            path,
        };

        let stop = Arc::new(AtomicBool::new(false));
        let welcome = Welcome {
            slots,
            secret,
            fds: [slots_fd, tids_fd, rows.file.as_raw_fd()],
        };
        let thread = std::thread::Builder::new()
            .name("debox-tap".to_string())
            .spawn({
                let (stop, listener) = (Arc::clone(&stop), Arc::clone(&listener));
                move || serve(&listener, &welcome, &stop, is_monitored)
            })?;
        Ok(TapServer {
            address: address.to_string(),
            rows,
            clock,
            listener,
            stop,
            thread: Some(thread),
            _directory: directory,
        })
    }

    /// Keeps the processes' clock close to the kernel's.
    pub fn refresh_clock(&mut self) {
        self.clock.refresh();
    }
}

impl Drop for TapServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits in accept gets an error now.
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the directory where temporary files are, unless that path is too long for a socket's name.
fn make_directory() -> Result<SessionDirectory> {
    let named = std::env::temp_dir();
    let fits = |place: &Path| {
        // With room for the suffix that tempfile adds to the prefix.
        let example = place.join(format!("{PREFIX}0123456789")).join(SOCKET);
        place.is_absolute() && UnixAddr::new(&example).is_ok()
    };
    let place = if fits(&named) {
        &named
    } else {
        Path::new("/tmp")
    };
    SessionDirectory::create_in(place, PREFIX)
}

/// Listens at a path. A session of root has processes of any user, so every user can connect; each connection is
/// checked before it is answered. A session without privilege only has processes of its own user.
fn listen(path: &Path) -> Result<OwnedFd> {
    let listener = socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .context("cannot make the user tap's socket")?;
    let name = UnixAddr::new(path)?;
    socket::bind(listener.as_raw_fd(), &name)
        .with_context(|| format!("cannot name the user tap's socket {}", path.display()))?;
    let mode = if own_user() == 0 { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .context("cannot open the user tap's socket to its processes")?;
    socket::listen(&listener, socket::Backlog::new(1024)?)?;
    Ok(listener)
}

fn own_user() -> u32 {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

fn serve(
    listener: &OwnedFd,
    welcome: &Welcome,
    stop: &AtomicBool,
    is_monitored: impl Fn(&Peer) -> bool,
) {
    // Any user can connect to a session of root and be refused; limit the CPU time that this takes.
    let mut refusals = Pace::new(REFUSALS, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let before = cpu::of_thread();
        match socket::accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
            Ok(fd) => {
                // SAFETY: accept returned a new descriptor that nothing else owns.
                let client = unsafe { OwnedFd::from_raw_fd(fd) };
                // Errors are ignored: the client has left.
                if !welcome.send_to(&client, &is_monitored).unwrap_or(false) {
                    drop(client);
                    let now = Instant::now();
                    refusals.charge(cpu::of_thread().saturating_sub(before), now);
                    std::thread::sleep(refusals.wait(now));
                }
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => {}
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Welcome {
    /// Sends the maps, but only to processes of the session: the socket's name is not secret. Returns whether it
    /// was one.
    fn send_to(&self, client: &OwnedFd, is_monitored: impl Fn(&Peer) -> bool) -> Result<bool> {
        let peer = Peer::of(client.as_fd())?;
        if !is_owners(&peer) || !is_monitored(&peer) || !peer.is_alive() {
            return Ok(false);
        }
        let mut message = Vec::with_capacity(16);
        message.extend(VERSION.to_ne_bytes());
        message.extend(self.slots.to_ne_bytes());
        message.extend(self.secret.to_ne_bytes());
        let [slots, tids, rows] = self.fds;
        let (slots, tids) = (own_map(slots), own_map(tids));
        // SAFETY: the file is the session's, which outlives this thread.
        let rows_file = unsafe { BorrowedFd::borrow_raw(rows) };
        let opened = memory_file::open_for_writing(rows_file).ok();
        let rows = opened.as_ref().map_or(rows, AsRawFd::as_raw_fd);
        let fds = [slots.as_raw_fd(), tids.as_raw_fd(), rows];
        socket::sendmsg::<()>(
            client.as_raw_fd(),
            &[IoSlice::new(&message)],
            &[ControlMessage::ScmRights(&fds)],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            None,
        )?;
        Ok(true)
    }
}

/// A map for one process. The state of an open file, above all its locks, would be shared with the session and
/// with its other processes, which may be other users', and last as long as the session.
enum OwnMap {
    Opened(OwnedFd),
    /// Without the privilege to open it again, all processes belong to one user.
    Shared(RawFd),
}

fn own_map(fd: RawFd) -> OwnMap {
    // SAFETY: the map is the session's, which outlives this thread.
    let map = unsafe { BorrowedFd::borrow_raw(fd) };
    let opened = objects::map_id(map).and_then(objects::map_by_id);
    opened.map_or(OwnMap::Shared(fd), OwnMap::Opened)
}

impl AsRawFd for OwnMap {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            OwnMap::Opened(map) => map.as_raw_fd(),
            OwnMap::Shared(fd) => *fd,
        }
    }
}

/// Whether the user that connected is the user of the process at the other end. Before Linux 6.5 the process is
/// known only by its id, which may have been reused. A session that is not root's only has processes of its own
/// user.
fn is_owners(peer: &Peer) -> bool {
    let path = format!("/proc/{}/status", peer.pid);
    let Ok(status) = std::fs::read_to_string(path) else {
        return false;
    };
    let own = own_user();
    let is_served = own == 0 || peer.uid == own;
    is_served && users_in(&status).any(|user| user == peer.uid) && peer.is_alive()
}

/// The real, effective, saved and file system user of a process.
fn users_in(status: &str) -> impl Iterator<Item = u32> + '_ {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok())
}

/// How many seccomp filters this process is under; 0 if the kernel does not report it.
fn seccomp_filters() -> u32 {
    filters_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn filters_in(status: &str) -> u32 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(is_monitored: impl Fn(&Peer) -> bool + Send + 'static) -> TapServer {
        let null = std::fs::File::open("/dev/null").expect("a device");
        let fd = null.as_raw_fd();
        let is_monitored = move |peer: &Peer| {
            let _open = &null;
            is_monitored(peer)
        };
        TapServer::start(4, fd, fd, false, is_monitored).expect("a server")
    }

    /// How many bytes and descriptors are received.
    fn ask(server: &TapServer) -> (usize, usize) {
        let (bytes, fds) = get(server);
        (bytes, fds.len())
    }

    fn get(server: &TapServer) -> (usize, Vec<OwnedFd>) {
        let address = Address::parse(&server.address).expect("an address");
        let client = crate::broker::channel::connect(&address.path, Duration::from_secs(5))
            .expect("it listens");
        let none = MsgFlags::empty();
        match crate::broker::channel::receive_all(client.as_fd(), 64, none) {
            Ok((bytes, fds, _)) => {
                assert_eq!(bytes[8..], address.secret.to_ne_bytes());
                (bytes.len(), fds)
            }
            Err(_) => (0, Vec::new()),
        }
    }

    #[test]
    fn who_is_not_monitored_gets_nothing() {
        assert_eq!(ask(&start(|peer| peer.pid == std::process::id())), (16, 3));
        assert_eq!(ask(&start(|_| false)), (0, 0));
    }

    /// The queue of the socket has 1024 places: further connections wait for the server.
    #[test]
    fn who_is_refused_again_and_again_waits() {
        let server = start(|_| false);
        let address = Address::parse(&server.address).expect("an address");
        let (start, mut count) = (Instant::now(), 0u32);
        while start.elapsed() < Duration::from_millis(1000) {
            let _ = crate::broker::channel::connect(&address.path, Duration::from_secs(5));
            count += 1;
        }
        // 120 ms of CPU time, and a refusal takes ten microseconds or more.
        assert!((100..15_000).contains(&count), "{count}");
    }

    /// The flags stand for all of an open file's state.
    #[test]
    fn each_program_opens_the_rows_for_itself() {
        let server = start(|_| true);
        let (first, second) = (get(&server).1, get(&server).1);
        let flags = |fd: RawFd| {
            // SAFETY: takes and returns integers.
            unsafe { libc::fcntl(fd, libc::F_GETFL) }
        };
        // SAFETY: as above.
        unsafe { libc::fcntl(first[2].as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
        assert!(flags(first[2].as_raw_fd()) & libc::O_APPEND != 0);
        for other in [second[2].as_raw_fd(), server.rows.file.as_raw_fd()] {
            assert_eq!(flags(other) & libc::O_APPEND, 0);
        }
    }

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let address = Address {
            filters: 3,
            sees_calls: true,
            secret: 0x00ab_cdef_0123_4567,
            path: "/tmp/a:b/socket".into(),
        };
        let text = address.to_string();
        assert_eq!(text, "3+:00abcdef01234567:/tmp/a:b/socket");
        assert_eq!(Address::parse(&text), Some(address));
        for text in [
            "",
            "3",
            "3:00abcdef01234567",
            "3:00abcdef01234567:",
            "3:00abcdef01234567:socket",
            "+3:00abcdef01234567:/socket",
            "3:+0abcdef01234567:/socket",
            "3:0abcdef01234567:/socket",
            ":00abcdef01234567:/socket",
            "x:00abcdef01234567:/socket",
        ] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_socket_goes_with_the_session() {
        let server = start(|_| true);
        let path = Address::parse(&server.address).expect("an address").path;
        let place = path.parent().expect("a directory").to_owned();
        assert!(path.exists());
        drop(server);
        assert!(!place.exists());
    }

    #[test]
    fn a_process_has_the_users_that_it_has_now() {
        let users = |status: &str| users_in(status).collect::<Vec<_>>();
        let status = "Name:\tUid:\nUid:\t1000\t0\t1000\t0\nGid:\t7\t7\t7\t7\n";
        assert_eq!(users(status), [1000, 0, 1000, 0]);
        assert!(users("Name:\tx\n").is_empty());
        // SAFETY: has no arguments and cannot fail.
        let real = unsafe { libc::getuid() };
        let own_group = nix::unistd::getegid().as_raw();
        let peer = |uid| Peer::with(std::process::id(), uid, own_group);
        assert!(is_owners(&peer(real)));
        assert!(!is_owners(&peer(real + 4321)));
    }

    #[test]
    fn filters_are_counted() {
        assert_eq!(filters_in("Name:\tx\nSeccomp_filters:\t2\n"), 2);
        assert_eq!(filters_in("Name:\tx\n"), 0);
    }
}
