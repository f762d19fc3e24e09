// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops, and which of them block.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Asyncio,
    Libuv,
    Go,
    Tokio,
    Libevent,
    Nginx,
}

/// What a program does beside answering its own requests.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub runtime: Runtime,
    pub what: &'static str,
    /// The call that blocks, one of these; none in a loop that does not.
    pub blocks_in: &'static [&'static str],
}

const fn honest(runtime: Runtime, what: &'static str) -> Case {
    blocks(runtime, what, &[])
}

const fn blocks(runtime: Runtime, what: &'static str, blocks_in: &'static [&'static str]) -> Case {
    Case {
        runtime,
        what,
        blocks_in,
    }
}

use Runtime::{Asyncio, Go, Libevent, Libuv, Nginx, Tokio};

pub const CORPUS: &[Case] = &[
    honest(Asyncio, "talks"),
    honest(Asyncio, "sleeps-in-a-thread"),
    honest(Asyncio, "saves-in-a-thread"),
    honest(Asyncio, "hashes-in-a-thread"),
    honest(Asyncio, "resolves-names"),
    blocks(
        Asyncio,
        "sleeps",
        &["clock_nanosleep", "select", "pselect6"],
    ),
    blocks(Asyncio, "saves", &["fsync"]),
    blocks(
        Asyncio,
        "waits-for-processes",
        &["wait4", "waitid", "poll", "read"],
    ),
    blocks(Asyncio, "takes-a-lock", &["futex"]),
    blocks(Asyncio, "asks-a-slow-peer", &["recvfrom"]),
    blocks(Asyncio, "locks-a-file", &["flock"]),
    blocks(Asyncio, "computes-in-threads", &["futex"]),
    blocks(Asyncio, "joins-a-thread", &["futex"]),
    honest(Libuv, "talks"),
    honest(Libuv, "saves-in-the-pool"),
    honest(Libuv, "hashes-in-the-pool"),
    honest(Libuv, "compresses-in-the-pool"),
    honest(Libuv, "makes-garbage"),
    honest(Libuv, "resolves-names"),
    blocks(Libuv, "saves", &["fsync"]),
    blocks(Libuv, "waits-for-a-shell", &["epoll_wait", "epoll_pwait"]),
    blocks(Libuv, "waits-for-processes", &["epoll_wait", "epoll_pwait"]),
    blocks(Libuv, "sleeps", &["futex"]),
    blocks(Libuv, "takes-a-lock", &["futex"]),
    blocks(Libuv, "reads-a-slow-pipe", &["read"]),
    honest(Go, "talks"),
    honest(Go, "makes-garbage"),
    honest(Go, "shares-work"),
    honest(Go, "waits-for-timer"),
    honest(Go, "asks-a-slow-peer"),
    blocks(Go, "saves", &["fsync"]),
    blocks(Go, "sleeps", &["nanosleep"]),
    blocks(Go, "waits-for-processes", &["wait4", "waitid"]),
    blocks(Go, "locks-a-file", &["flock"]),
    blocks(Go, "reads-a-slow-pipe", &["read"]),
    honest(Tokio, "talks"),
    honest(Tokio, "talks-in-one-thread"),
    honest(Tokio, "saves-in-the-pool"),
    honest(Tokio, "saves-in-place"),
    honest(Tokio, "writes-files"),
    honest(Tokio, "shares-a-lock"),
    blocks(Tokio, "saves", &["fsync"]),
    blocks(Tokio, "sleeps", &["clock_nanosleep"]),
    blocks(Tokio, "takes-a-lock", &["futex"]),
    blocks(Tokio, "waits-for-a-thread", &["futex"]),
    blocks(Tokio, "saves-in-a-loop-of-the-pool", &["fsync"]),
    blocks(Tokio, "asks-a-slow-peer", &["read", "recvfrom"]),
    blocks(Tokio, "waits-for-processes", &["wait4", "waitid", "futex"]),
    honest(Libevent, "talks"),
    honest(Libevent, "wakes-from-a-thread"),
    honest(Libevent, "takes-signals"),
    honest(Libevent, "appends"),
    honest(Libevent, "sends-a-file"),
    blocks(Libevent, "sleeps", &["clock_nanosleep"]),
    blocks(Libevent, "saves", &["fsync"]),
    blocks(Libevent, "takes-a-lock", &["futex"]),
    blocks(Libevent, "reads-a-slow-pipe", &["read"]),
    blocks(Libevent, "waits-for-processes", &["wait4"]),
    honest(Nginx, "answers"),
    honest(Nginx, "sends-files"),
    honest(Nginx, "compresses"),
    honest(Nginx, "passes-on"),
    honest(Nginx, "logs"),
    blocks(Nginx, "logs-to-a-slow-pipe", &["write"]),
    blocks(Nginx, "complains-to-a-slow-pipe", &["write"]),
    blocks(Nginx, "reads-past-the-cache", &["pread64"]),
    blocks(Nginx, "sends-cold-files", &["sendfile"]),
    blocks(Nginx, "reads-cold-files", &["pread64"]),
];

impl Case {
    pub fn name(&self) -> String {
        format!("{:?} {}", self.runtime, self.what)
    }

    pub fn is_honest(&self) -> bool {
        self.blocks_in.is_empty()
    }
}
