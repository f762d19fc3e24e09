// SPDX-License-Identifier: MIT OR Apache-2.0
//! To which phase a call belongs, by the descriptors of its process.

use std::collections::HashMap;

use debox_model::history::Call;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// For work of any connection.
    Wait,
    Accept,
    /// Options, registration for events.
    Connection,
    Receive,
    FindFile,
    ReadFile,
    Upstream,
    Send,
    Log,
    Close,
    Time,
    Memory,
    Threads,
    Other,
    /// Between calls.
    Program,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Wait => "wait for work",
            Phase::Accept => "accept",
            Phase::Connection => "set up the connection",
            Phase::Receive => "read the request",
            Phase::FindFile => "find the file",
            Phase::ReadFile => "read the file",
            Phase::Upstream => "ask another server",
            Phase::Send => "send the response",
            Phase::Log => "write to files (log)",
            Phase::Close => "close",
            Phase::Time => "clock and timers",
            Phase::Memory => "memory",
            Phase::Threads => "other threads",
            Phase::Other => "other calls",
            Phase::Program => "the program, between calls",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connection,
    /// One that the server has opened to another.
    Upstream,
    File,
    Socket,
    /// One that wakes another thread.
    Event,
}

/// What a process's descriptors are, as far as their calls tell.
#[derive(Debug, Default)]
pub struct Descriptors {
    kinds: HashMap<i64, Kind>,
}

impl Descriptors {
    /// The phase; and the connection, if the call was on one.
    pub fn classify(&mut self, call: &Call) -> (Phase, Option<i64>) {
        // A descriptor is an int.
        let descriptor = |word: u64| i64::from(word as u32 as i32);
        let [first, _, third] = call.args.map(descriptor);
        let kind = self.kinds.get(&first).copied();
        let of_first = (kind == Some(Kind::Connection)).then_some(first);
        match &*call.name {
            "accept" | "accept4" => {
                if call.ret >= 0 {
                    self.kinds.insert(call.ret, Kind::Connection);
                }
                (Phase::Accept, None)
            }
            "socket" => {
                self.opened(call.ret, Kind::Socket);
                (Phase::Upstream, None)
            }
            "connect" => {
                self.opened(first, Kind::Upstream);
                (Phase::Upstream, None)
            }
            "open" | "openat" | "openat2" | "creat" => {
                self.opened(call.ret, Kind::File);
                (Phase::FindFile, None)
            }
            "close" => {
                let was = self.kinds.remove(&first);
                match was {
                    Some(Kind::Connection) => (Phase::Close, Some(first)),
                    Some(Kind::Upstream | Kind::Socket) => (Phase::Upstream, None),
                    _ => (Phase::FindFile, None),
                }
            }
            "shutdown" if of_first.is_some() => (Phase::Close, of_first),
            "eventfd" | "eventfd2" => {
                self.opened(call.ret, Kind::Event);
                (Phase::Threads, None)
            }
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "select" | "pselect6" => {
                (Phase::Wait, None)
            }
            // A server that handles one connection in a thread waits for that one.
            "poll" | "ppoll" => (Phase::Receive, None),
            "epoll_ctl" => {
                let is_connection = self.kinds.get(&third) == Some(&Kind::Connection);
                (Phase::Connection, is_connection.then_some(third))
            }
            "setsockopt" | "getsockopt" | "getsockname" | "getpeername" | "fcntl" | "ioctl" => {
                match kind {
                    Some(Kind::File) => (Phase::FindFile, None),
                    Some(Kind::Upstream | Kind::Socket) => (Phase::Upstream, None),
                    _ => (Phase::Connection, of_first),
                }
            }
            "sendfile" | "splice" => {
                let to = if &*call.name == "splice" {
                    third
                } else {
                    first
                };
                let is_connection = self.kinds.get(&to) == Some(&Kind::Connection);
                (Phase::Send, is_connection.then_some(to))
            }
            "read" | "readv" | "recvfrom" | "recvmsg" | "pread64" | "preadv" | "preadv2" => {
                match kind {
                    Some(Kind::Connection) => (Phase::Receive, of_first),
                    Some(Kind::Upstream | Kind::Socket) => (Phase::Upstream, None),
                    Some(Kind::Event) => (Phase::Threads, None),
                    _ => (Phase::ReadFile, None),
                }
            }
            "write" | "writev" | "sendto" | "sendmsg" | "sendmmsg" | "pwrite64" | "pwritev" => {
                match kind {
                    Some(Kind::Connection) => (Phase::Send, of_first),
                    Some(Kind::Upstream | Kind::Socket) => (Phase::Upstream, None),
                    Some(Kind::Event) => (Phase::Threads, None),
                    _ => (Phase::Log, None),
                }
            }
            other => (by_name(other), None),
        }
    }

    fn opened(&mut self, descriptor: i64, kind: Kind) {
        if descriptor >= 0 {
            self.kinds.insert(descriptor, kind);
        }
    }
}

fn by_name(call: &str) -> Phase {
    match call {
        "stat" | "lstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2"
        | "readlink" | "readlinkat" | "getdents64" | "statfs" | "fstatfs" | "fstat"
        | "fadvise64" | "cachestat" | "lseek" | "flock" => Phase::FindFile,
        "clock_gettime" | "gettimeofday" | "time" | "times" | "timerfd_settime" | "setitimer"
        | "timer_settime" | "nanosleep" | "clock_nanosleep" => Phase::Time,
        "mmap" | "munmap" | "mremap" | "mprotect" | "madvise" | "mincore" | "brk" => Phase::Memory,
        "futex" | "tgkill" | "sched_yield" | "semop" | "semtimedop" => Phase::Threads,
        _ => Phase::Other,
    }
}
