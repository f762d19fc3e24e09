//! Safe functions for system calls that the standard library lacks.

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The effective user.
pub fn user() -> u32 {
    // SAFETY: it cannot fail.
    unsafe { libc::geteuid() }
}

pub fn is_root() -> bool {
    user() == 0
}

/// The result of a call that returns -1 on failure.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn checked_length(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Bytes that this user may still write there.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: plain numbers, all of which may be 0.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with 0, and the structure is filled in.
    checked(unsafe { libc::statvfs(path.as_ptr(), &mut found) })?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Nanoseconds on a clock.
fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is filled in; the clocks used here exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The clock for all times. It is the same in all processes of a machine.
pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The time of day.
pub fn realtime_ns() -> i64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until [`now_ns`] reaches this time.
pub fn sleep_until(ns: i64) {
    let time = libc::timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    };
    // SAFETY: only reads the structure.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// Sets this thread's timer slack to the minimum; the default delays wake-ups by up to 50 us.
pub fn wake_exactly() {
    // SAFETY: sets a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Raises the limit for descriptors to the allowed maximum, and returns it.
pub fn raise_descriptors() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is filled in.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: only reads the structure.
        checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// A ready descriptor, identified by its token.
pub type Event = libc::epoll_event;

/// An epoll descriptor. `mio` waits in whole milliseconds, which is too coarse for request starts.
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let descriptor = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Reports changes of readability and writability, edge-triggered. Closing the descriptor removes
    /// it.
    pub fn add(&self, descriptor: &OwnedFd, token: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = Event {
            events: events as u32,
            u64: token,
        };
        // SAFETY: only reads the structure; both descriptors are open.
        let added = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor.as_raw_fd(),
                &mut event,
            )
        };
        checked(added).map(drop)
    }

    /// Waits until there are events, or for `ns`. A signal ends the wait without events.
    pub fn wait<'a>(&self, events: &'a mut [Event], ns: i64) -> io::Result<&'a [Event]> {
        let timeout = libc::timespec {
            tv_sec: ns / 1_000_000_000,
            tv_nsec: ns % 1_000_000_000,
        };
        // Through `syscall`: C libraries before glibc 2.35 have no function for it.
        // SAFETY: the kernel writes no more events than there is room for.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                &timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        match usize::try_from(ready) {
            Ok(ready) => Ok(&events[..ready]),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
                error => Err(error),
            },
        }
    }
}

/// Begins to connect, without blocking.
pub fn connect(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let descriptor = checked(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let on: libc::c_int = 1;
    // SAFETY: the option is an int.
    checked(unsafe {
        libc::setsockopt(
            descriptor,
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    let connected = match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the address has the given length.
            unsafe {
                libc::connect(
                    descriptor,
                    (&raw const raw).cast(),
                    size_of::<libc::sockaddr_in>() as libc::socklen_t,
                )
            }
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe {
                libc::connect(
                    descriptor,
                    (&raw const raw).cast(),
                    size_of::<libc::sockaddr_in6>() as libc::socklen_t,
                )
            }
        }
    };
    match checked(connected) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// The result of connecting.
pub fn connected(socket: &OwnedFd) -> io::Result<()> {
    let mut error: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &mut length,
        )
    })?;
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The socket's local port; 0 if it has none.
pub fn local_port(socket: &OwnedFd) -> u16 {
    // SAFETY: plain numbers, all of which may be 0.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: no more is written than there is room for. The port is at the same place in both families.
    unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &mut length) };
    u16::from_be(address.sin6_port)
}

pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: only reads the bytes.
    checked_length(unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    })
}

/// Reads; 0 is the end.
pub fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: no more is written than there is room for.
    checked_length(unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
        )
    })
}

/// Takes up to `length` bytes off the socket without copying them to user space.
pub fn discard(socket: &OwnedFd, length: usize) -> io::Result<usize> {
    // SAFETY: nothing is written.
    checked_length(unsafe {
        libc::recv(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            length,
            libc::MSG_TRUNC,
        )
    })
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: no memory is passed.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills what is left of a process group, and waits briefly until it has ended.
pub fn kill_group(leader: u32) {
    let Ok(leader) = libc::pid_t::try_from(leader) else {
        return;
    };
    for _ in 0..50 {
        // SAFETY: no memory is passed.
        if unsafe { libc::killpg(leader, libc::SIGKILL) } != 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Whether the other end of a pipe is closed, or gets closed within the given time.
pub fn reader_goes(pipe: &impl AsRawFd, within_ms: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: the structure is filled in.
    unsafe { libc::poll(&mut asked, 1, within_ms) == 1 }
}

/// How a child process has ended, without reaping it; `None` while it runs.
pub fn how_ended(pid: u32) -> Option<String> {
    // SAFETY: plain numbers, all of which may be 0.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure is filled in.
    checked(unsafe { libc::waitid(libc::P_PID, pid, &mut found, flags) }).ok()?;
    // SAFETY: of a child that has ended both are there.
    let (which, status) = unsafe { (found.si_pid(), found.si_status()) };
    match found.si_code {
        _ if which == 0 => None,
        libc::CLD_EXITED => Some(format!("it ended with status {status}")),
        _ => Some(format!("signal {status} ended it")),
    }
}

/// Makes this process end when its parent does.
pub fn end_with_parent() {
    // SAFETY: sets a number of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Makes a command's process get SIGTERM when this thread ends.
pub fn end_with_this_thread(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure makes one system call, which may be made after a fork.
    unsafe {
        command.pre_exec(|| {
            end_with_parent();
            Ok(())
        })
    };
}

/// Drops a file's pages from the page cache, unless they are in use.
pub fn forget_pages(file: &std::fs::File) {
    // SAFETY: no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Whether the kernel can resolve a name, or say that it does not exist, from its caches alone. The name is not
/// looked up otherwise.
pub fn is_name_cached(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: plain numbers, all of which may be 0.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_CACHED;
    // SAFETY: the path ends with 0, and the structure has the length that is given.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    if opened >= 0 {
        // SAFETY: the descriptor is new, and owned by nothing else.
        drop(unsafe { OwnedFd::from_raw_fd(opened as i32) });
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(false),
        Some(libc::ENOENT) => Ok(true),
        _ => Err(error),
    }
}

/// The number of a file's pages in the page cache, and of all its pages. The kernel answers truly only to the
/// file's owner.
pub fn cached_pages(file: &std::fs::File) -> io::Result<(u64, u64)> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if length == 0 {
        return Ok((0, 0));
    }
    // SAFETY: a new mapping, which nothing reads from.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it cannot fail.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut states = vec![0u8; length.div_ceil(page)];
    // SAFETY: there is a byte for each page of the mapping.
    let asked = checked(unsafe { libc::mincore(at, length, states.as_mut_ptr()) });
    // SAFETY: the mapping is this function's own.
    unsafe { libc::munmap(at, length) };
    asked?;
    let cached = states.iter().filter(|state| **state & 1 == 1).count();
    Ok((cached as u64, states.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_it_should() {
        let until = now_ns() + 3_000_000;
        sleep_until(until);
        assert!(now_ns() >= until);
    }

    #[test]
    fn how_a_child_ended_is_known_and_it_can_still_be_waited_for() {
        let sh = |script: &str| {
            let child = std::process::Command::new("/bin/sh")
                .args(["-c", script])
                .spawn();
            child.unwrap()
        };
        let mut child = sh("sleep 60");
        assert_eq!(how_ended(child.id()), None);
        child.kill().unwrap();
        let until = |pid: u32| loop {
            match how_ended(pid) {
                Some(how) => break how,
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        assert_eq!(until(child.id()), "signal 9 ended it");
        assert_eq!(child.wait().unwrap().code(), None);
        let mut child = sh("exit 3");
        assert_eq!(until(child.id()), "it ended with status 3");
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(how_ended(child.id()), None);
    }

    #[test]
    fn a_wait_without_events_ends() {
        let epoll = Epoll::new().unwrap();
        let before = now_ns();
        let mut events = [Event { events: 0, u64: 0 }; 4];
        assert!(epoll.wait(&mut events, 2_000_000).unwrap().is_empty());
        assert!(now_ns() - before >= 2_000_000);
    }

    #[test]
    fn bytes_are_discarded() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connect(&listener.local_addr().unwrap()).unwrap();
        let (mut peer, from) = listener.accept().unwrap();
        assert!(connected(&socket).is_ok());
        assert_eq!(local_port(&socket), from.port());
        peer.write_all(b"0123456789").unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(&socket, 9).unwrap();
        let mut events = [Event { events: 0, u64: 0 }; 4];
        while epoll.wait(&mut events, 1_000_000_000).unwrap()[0].events & libc::EPOLLIN as u32 == 0
        {
        }
        assert_eq!(discard(&socket, 4).unwrap(), 4);
        let mut rest = [0; 10];
        assert_eq!(receive(&socket, &mut rest).unwrap(), 6);
        assert_eq!(&rest[..6], b"456789");
        assert_eq!(send(&socket, b"yes").unwrap(), 3);
        drop(socket);
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "yes");
    }
}
