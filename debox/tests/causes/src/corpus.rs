// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs, what is planted in each, and what the headline has to name.

use crate::beside::Role;

/// A planted cause.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The program's file in `programs/`.
    pub program: &'static str,
    /// What is planted, in the words of the documentation's table.
    pub planted: &'static str,
    pub beside: Option<Role>,
    pub within: Within,
    pub truth: Truth,
}

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    Nothing,
    CpuQuota,
    Memory,
    /// On a disk on which little can be written in a second.
    SlowDisk,
    /// On a disk that can be read few times in a second.
    SlowReads,
    /// On the first CPU, where the hogs of [`Role::Hogs`] are.
    FirstCpu,
    /// With another name server.
    NameServer,
}

/// What the headline has to say.
#[derive(Debug, Clone, Copy)]
pub enum Truth {
    Cause(Cause),
    /// A circle of threads, of so many.
    Deadlock(usize),
    /// That it waits for requests.
    Served,
    /// That there is no one cause.
    None,
}

/// What the longest share has to be.
#[derive(Debug, Clone, Copy)]
pub struct Cause {
    /// One of these.
    pub names: &'static [&'static str],
    /// In one of these calls, alone or with other causes in that call; in any, if there are none.
    pub calls: &'static [&'static str],
    /// So much of the time, or more.
    pub least: f64,
    /// Who had what was waited for.
    pub owner: Option<&'static str>,
    /// What was waited for is the place that stands beside the program.
    pub at_place: bool,
    /// In many processes that did not live long.
    pub in_short_lives: bool,
    /// The function that the samples were in.
    pub function: Option<&'static str>,
}

impl Cause {
    const fn in_calls(mut self, calls: &'static [&'static str]) -> Cause {
        self.calls = calls;
        self
    }

    const fn least(mut self, least: f64) -> Cause {
        self.least = least;
        self
    }

    const fn owned_by(mut self, owner: &'static str) -> Cause {
        self.owner = Some(owner);
        self
    }

    const fn in_short_lives(mut self) -> Cause {
        self.in_short_lives = true;
        self
    }

    const fn in_function(mut self, function: &'static str) -> Cause {
        self.function = Some(function);
        self
    }

    const fn at_place(mut self) -> Cause {
        self.at_place = true;
        self
    }
}

const fn cause(names: &'static [&'static str]) -> Cause {
    Cause {
        names,
        calls: &[],
        least: 0.5,
        owner: None,
        at_place: false,
        in_short_lives: false,
        function: None,
    }
}

const fn case(program: &'static str, planted: &'static str, cause: Cause) -> Case {
    Case {
        program,
        planted,
        beside: None,
        within: Within::Nothing,
        truth: Truth::Cause(cause),
    }
}

const fn none(program: &'static str, planted: &'static str, truth: Truth) -> Case {
    Case {
        truth,
        ..case(program, planted, COMPUTES)
    }
}

impl Case {
    const fn beside(mut self, role: Role) -> Case {
        self.beside = Some(role);
        self
    }

    const fn within(mut self, within: Within) -> Case {
        self.within = within;
        self
    }
}

const COMPUTES: Cause = cause(&["user CPU"]).least(0.7);
const QUOTA: Cause = cause(&["CPU quota"]);
const TIMER: Cause = cause(&["timer"]).least(0.7);
/// On a fast disk the kernel computes for as long as it waits: the call is the cause.
const FSYNC: Cause = cause(&["fsync"]).in_calls(&["fsync"]);
const STORM: Cause = cause(&["kernel CPU", "user CPU"])
    .least(0.3)
    .in_short_lives();

/// All of them.
pub const CORPUS: &[Case] = &[
    case(
        "computes.c",
        "computing",
        COMPUTES.in_function("sums (computes.c:"),
    ),
    case("computes.py", "computing", COMPUTES),
    case("computes.js", "computing", COMPUTES),
    case(
        "computes.go",
        "computing",
        COMPUTES.in_function("main.main (computes.go:"),
    ),
    case("computes.sh", "computing", COMPUTES),
    case("computes.c", "CPU quota", QUOTA).within(Within::CpuQuota),
    case("computes.go", "CPU quota", QUOTA).within(Within::CpuQuota),
    case("computes.js", "CPU quota", QUOTA).within(Within::CpuQuota),
    case(
        "computes.py",
        "CPU competitors",
        cause(&["waiting for a CPU"]).owned_by("hog (3 processes)"),
    )
    .within(Within::FirstCpu)
    .beside(Role::Hogs),
    case(
        "crowds_its_cpu.c",
        "CPU competitors: its own threads",
        cause(&["waiting for a CPU"]).owned_by("crowds_its_cpu itself"),
    ),
    case(
        "retries_locked_database.py",
        "busy retry",
        TIMER.in_calls(&["clock_nanosleep"]),
    )
    .beside(Role::LocksDatabase),
    case(
        "retries_full_queue.c",
        "busy retry",
        TIMER.in_calls(&["clock_nanosleep"]),
    ),
    case(
        "polls_for_a_file.sh",
        "busy retry",
        TIMER.in_calls(&["clock_nanosleep"]),
    ),
    case("sleeps.go", "busy retry", TIMER),
    case("sleeps.js", "timers", TIMER),
    case(
        "ticks.py",
        "timers",
        cause(&["signal"])
            .in_calls(&["pause", "rt_sigsuspend"])
            .least(0.8),
    ),
    case(
        "waits_for_slow_peer.c",
        "slow peer",
        cause(&["TCP receive"]).least(0.8).at_place(),
    )
    .beside(Role::SlowServer),
    case(
        "waits_for_slow_peer.py",
        "slow peer",
        cause(&["TCP receive", "poll"]).least(0.8).at_place(),
    )
    .beside(Role::SlowServer),
    case(
        "waits_for_slow_peer.js",
        "slow peer",
        cause(&["epoll"]).least(0.8).at_place(),
    )
    .beside(Role::SlowServer),
    case(
        "waits_for_slow_peer.go",
        "slow peer",
        cause(&["epoll", "futex"]).least(0.7),
    )
    .beside(Role::SlowServer),
    case(
        "waits_for_slow_peer.sh",
        "slow peer",
        cause(&["TCP receive"]).least(0.8).at_place(),
    )
    .beside(Role::SlowServer),
    case(
        "asks_silent_name_server.py",
        "DNS",
        cause(&["timer", "poll"])
            .in_calls(&["poll"])
            .least(0.8)
            .at_place(),
    )
    .within(Within::NameServer)
    .beside(Role::SilentNameServer),
    case(
        "asks_silent_name_server.js",
        "DNS",
        cause(&["timer", "poll"]).in_calls(&["poll"]).at_place(),
    )
    .within(Within::NameServer)
    .beside(Role::SilentNameServer),
    case(
        "waits_for_file_lock.py",
        "lock of another process",
        cause(&["flock"]).least(0.8).owned_by("python3"),
    )
    .beside(Role::LocksFile),
    case(
        "waits_for_file_lock.sh",
        "lock of another process",
        cause(&["flock"]).owned_by("python3"),
    )
    .beside(Role::LocksFile),
    case(
        "waits_for_record_lock.c",
        "lock of another process",
        cause(&["POSIX file lock"]).least(0.8).owned_by("python3"),
    )
    .beside(Role::LocksRecord),
    case(
        "waits_for_mutex.c",
        "lock of its own",
        cause(&["futex"]).owned_by("has-the-mutex"),
    ),
    case(
        "waits_for_writer.c",
        "lock of its own",
        cause(&["futex"]).owned_by("writer"),
    ),
    case("waits_for_lock.py", "lock of its own", cause(&["futex"])),
    case(
        "waits_for_semaphore.c",
        "lock of its own",
        cause(&["semaphore"]),
    ),
    none("deadlocks.c", "deadlock", Truth::Deadlock(2)),
    case("deadlocks.py", "deadlock", cause(&["futex"])),
    case(
        "livelocks.c",
        "livelock",
        cause(&["kernel CPU"])
            .in_calls(&["openat", "unlinkat"])
            .least(0.3),
    ),
    case(
        "writes_to_slow_reader.py",
        "slow pipe reader",
        cause(&["pipe full"]).least(0.8).at_place(),
    )
    .beside(Role::SlowReader),
    case(
        "reads_from_slow_writer.sh",
        "slow pipe writer",
        cause(&["pipe empty"]).least(0.8).at_place(),
    )
    .beside(Role::SlowWriter),
    case(
        "waits_for_message.py",
        "slow worker of its own",
        cause(&["timer", "Unix socket empty"]).least(0.4),
    ),
    case(
        "fills_socket.c",
        "full socket buffer",
        cause(&["TCP send"]).least(0.8).at_place(),
    )
    .beside(Role::SlowReceiver),
    case(
        "fills_unix_socket.py",
        "full socket buffer",
        cause(&["Unix socket full"]).least(0.8).at_place(),
    )
    .beside(Role::SlowLog),
    case("syncs.py", "fsync storm", FSYNC),
    case("syncs.go", "fsync storm", FSYNC),
    case("syncs.js", "fsync storm", FSYNC),
    case(
        "crowds_a_directory.c",
        "directory lock",
        cause(&["directory lock"]).least(0.4),
    ),
    case("writes_one_file.c", "inode lock", cause(&["inode lock"])),
    case(
        "maps_in_turns.c",
        "lock of its address space",
        cause(&["mmap lock"]).least(0.4),
    ),
    case(
        "touches_cold_mapping.c",
        "cold mapping",
        cause(&["mapped page read"]).in_calls(&["(user)"]),
    )
    .within(Within::SlowReads),
    case(
        "reads_cold_file.py",
        "cold file",
        cause(&["page read"]).in_calls(&["pread64"]),
    )
    .within(Within::SlowReads),
    case(
        "reclaims_memory.c",
        "reclaim in a memory cgroup",
        cause(&[
            "memory reclaim",
            "memory cgroup reclaim",
            "dirty throttling",
            "page writeback",
        ]),
    )
    .within(Within::Memory),
    case(
        "writes_to_throttled_disk.py",
        "throttled disk",
        cause(&["direct I/O", "block throttling"]).least(0.8),
    )
    .within(Within::SlowDisk),
    case("starts_processes.sh", "process storm", STORM),
    case("starts_processes.py", "process storm", STORM),
    case(
        "looks_for_missing_files.c",
        "missing-file storm",
        cause(&["kernel CPU"]).in_calls(&["openat", "open"]),
    ),
    case(
        "looks_for_missing_files.py",
        "missing-file storm",
        cause(&["kernel CPU"])
            .in_calls(&["access", "faccessat", "faccessat2"])
            .least(0.3),
    ),
    case(
        "storms_with_signals.c",
        "signal storm",
        cause(&["kernel CPU"]).in_calls(&["kill", "rt_sigreturn"]),
    ),
    none("serves_no_one.c", "none: an idle server", Truth::Served),
    none("serves_no_one.py", "none: an idle server", Truth::Served),
    none("serves_no_one.js", "none: an idle server", Truth::Served),
    none("serves_no_one.go", "none: an idle server", Truth::Served),
    none(
        "has_no_cause.py",
        "none: a little of everything",
        Truth::None,
    )
    .beside(Role::SlowWriter),
];
