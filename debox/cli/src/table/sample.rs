//! Hand-made reports for tests.

// A new field needs a value here only where a test asks for one.
#![allow(clippy::needless_update)]

use debox::report::*;

const MS: u64 = 1_000_000;

fn strings<T: for<'a> From<&'a str>>(texts: &[&str]) -> Vec<T> {
    texts.iter().copied().map(T::from).collect()
}

/// Two threads that wait for each other.
pub fn stuck() -> Report {
    let wait = |tid: u32, lock: &str| DeadlockWait {
        pid: 4100,
        tid,
        comm: format!("worker{}", tid - 4100),
        syscall: "futex".to_string(),
        lock: "mutex".to_string(),
        name: Some(format!("{lock} (server)")),
        has_timeout: false,
        caller: Some(format!("take_{lock}+0x1a (server.c:{tid})").into()),
        frames: strings(&["__lll_lock_wait+0x2c", "take"]),
        ..DeadlockWait::default()
    };
    Report {
        deadlocks: vec![Deadlock {
            found_ns: 300 * MS,
            may_end: false,
            behind: 3,
            waits: vec![wait(4101, "accounts"), wait(4102, "journal")],
            ..Deadlock::default()
        }],
        ..empty()
    }
}

/// A session that saw nothing.
pub fn empty() -> Report {
    Report {
        schema: SCHEMA.to_string(),
        command: strings(&["true"]),
        kernel: "6.12.0".to_string(),
        tap: "kernel".to_string(),
        detail: strings(&["basic", "sleeps"]),
        exit_status: Some(0),
        ..Report::default()
    }
}

/// One thread, 12.3 ms.
pub fn short() -> Report {
    let totals = Totals {
        wall_ns: 12_300_000,
        user_cpu_ns: 6_100_000,
        kernel_cpu_ns: 2_000_000,
        blocked_ns: 4_100_000,
        runqueue_ns: 90_000,
        preempted_ns: 10_000,
        ..Totals::default()
    };
    let thread = Thread {
        pid: 77,
        tid: 77,
        comm: "true".to_string(),
        calls: 31,
        totals: totals.clone(),
        ..Thread::default()
    };
    Report {
        duration_ns: 12_300_000,
        exit_status: Some(3),
        totals,
        syscalls: vec![
            call("(user)", 0, 6_200_000, 0),
            call("openat", 1, 4_200_000, 4_100_000),
            call("mmap", 30, 1_900_000, 0),
        ],
        sleeps: vec![Sleep {
            count: 1,
            max_ns: 4_100_000,
            ..sleep("openat", "inode read", "disk", 4_100_000)
        }],
        threads: vec![thread],
        ..empty()
    }
    .with_headline()
}

/// A threaded server with a slow disk, every list filled and every optional number measured.
pub fn rich() -> Report {
    let mut syscalls = vec![
        call("(user)", 0, 24_400 * MS, 300 * MS),
        call("epoll_wait", 48_120, 9_100 * MS, 9_050 * MS),
        call("pread64", 91_004, 4_200 * MS, 3_890 * MS),
        call("openat", 12_611, 1_700 * MS, 1_610 * MS),
        call("futex", 3_204, 650 * MS, 600 * MS),
        call("write", 1_204_113, 210 * MS, 0),
    ];
    syscalls[0].faults_minor = 20_311;
    syscalls[0].faults_major = Some(3);
    syscalls[3].errors = 17;
    syscalls[4].restarts = 2;
    syscalls[4].spin_ns = Some(40_000);
    syscalls[2].read_bytes = Some(372_736_000);
    syscalls[2].write_bytes = Some(0);
    for nth in 0..14 {
        syscalls.push(call(
            &format!("syscall_{}", 500 + nth),
            10,
            1_000 * (100 - nth),
            0,
        ));
    }
    Report {
        command: strings(&["server", "-t", "4"]),
        kernel: "6.12.0".to_string(),
        detail: strings(&["basic", "sleeps", "callsites", "irq", "io"]),
        duration_ns: 10_200 * MS,
        exit_status: Some(130),
        totals: Totals {
            wall_ns: 40_300 * MS,
            user_cpu_ns: 23_900 * MS,
            kernel_cpu_ns: 650 * MS,
            blocked_ns: 15_450 * MS,
            runqueue_ns: 160 * MS,
            preempted_ns: 40 * MS,
            irq_ns: Some(100 * MS),
            outside_ns: None,
            stolen_ns: Some(30 * MS),
            ..Totals::default()
        },
        steal_ns: Some(330 * MS),
        unseen_wait_ns: 7 * MS,
        slow_ns: None,
        syscalls,
        sleeps: rich_sleeps(),
        chains: rich_chains(),
        call_sites: vec![CallSite {
            syscall: "pread64".to_string(),
            frames: strings(&[
                "read_block+0x52 (store.c:210)",
                "serve+0x1ce (server.c:88)",
                "worker+0x3f (server.c:140)",
                "start_thread+0x2f5 (libc.so.6)",
                "clone3+0x2c (libc.so.6)",
            ]),
            caller: Some("read_block+0x52 (store.c:210)".into()),
            calls: 90_900,
            wall_ns: 4_190 * MS,
            blocked_ns: 3_885 * MS,
            max_ns: 20 * MS,
            ..CallSite::default()
        }],
        threads: rich_threads(),
        in_flight: vec![
            InFlight {
                pid: 800,
                tid: 801,
                comm: "worker".to_string(),
                syscall: "pread64".to_string(),
                for_ns: 21 * MS,
                at_least: false,
                label: "page read".to_string(),
                class: "disk".to_string(),
                resource: Some(Resource {
                    kind: "file".to_string(),
                    name: Some("/srv/store/index".to_string()),
                    ..Resource::default()
                }),
                owner: None,
                frames: strings(&["folio_wait_bit_common+0x142", "filemap_get_pages+0x3b1"]),
                ..InFlight::default()
            },
            InFlight {
                pid: 800,
                tid: 800,
                comm: "server".to_string(),
                syscall: "epoll_wait".to_string(),
                for_ns: 10_200 * MS,
                at_least: true,
                label: "epoll".to_string(),
                class: "idle".to_string(),
                resource: None,
                owner: None,
                frames: strings(&["ep_poll+0x38a"]),
                ..InFlight::default()
            },
            InFlight {
                pid: 800,
                tid: 802,
                comm: "writer".to_string(),
                syscall: "openat".to_string(),
                for_ns: 3_100 * MS,
                at_least: true,
                label: "inode lock".to_string(),
                class: "lock".to_string(),
                resource: Some(inode_lock("/srv/store")),
                owner: Some(Holder {
                    certainty: Certainty::Exact,
                    comm: Some("worker".to_string()),
                    tid: Some(801),
                    doing: Some("page read".to_string()),
                    ..Holder::default()
                }),
                frames: strings(&["open_last_lookups+0x2f1"]),
                ..InFlight::default()
            },
        ],
        trace: Some(sampled_trace()),
        untapped: vec![Untapped {
            syscall: "fsync".to_string(),
            label: "journal commit".to_string(),
            count: 4,
            blocked_ns: 81 * MS,
            resources: Vec::new(),
            owners: Vec::new(),
            ..Untapped::default()
        }],
        unseen: strings(&[
            "The kernel has no debug information here, so sites have no file and line.",
        ]),
        ..empty()
    }
    .with_headline()
}

/// The rich session with a trigger, and something of every kind lost.
pub fn lossy() -> Report {
    let lost = Lost {
        records: 1,
        sleeps: 1_204,
        stacks: 7,
        threads: 2,
        rows: 33,
        probe_misses: 5,
        refused: 3,
        ..Lost::default()
    };
    Report {
        lost,
        triggers: vec![trigger()],
        ..rich()
    }
}

/// A build: a few long-lived processes and many short ones of two names.
pub fn build() -> Report {
    let mut threads = vec![thread(10, 10, "make", 5_000 * MS)];
    threads.extend((0..120).map(|nth| thread(100 + nth, 100 + nth, "sh", 10 * MS)));
    threads.extend((0..60).map(|nth| thread(300 + nth, 300 + nth, "cc1", 60 * MS)));
    threads.extend((0..2).map(|nth| thread(400 + nth, 400 + nth, "ld", 200 * MS)));
    Report {
        duration_ns: 5_000 * MS,
        threads,
        ..empty()
    }
}

fn call(name: &str, calls: u64, wall_ns: u64, blocked_ns: u64) -> Syscall {
    // The time between calls has no distribution, and no count of its own.
    let is_call = name != "(user)";
    let mean_ns = if is_call {
        wall_ns / calls.max(1)
    } else {
        wall_ns / 1_000
    };
    Syscall {
        name: name.to_string(),
        calls,
        wall_ns,
        cpu_ns: (wall_ns - blocked_ns) / 10 * 9,
        blocked_ns,
        runqueue_ns: (wall_ns - blocked_ns) / 10,
        p50_ns: is_call.then_some(mean_ns / 2),
        p99_ns: is_call.then_some(mean_ns * 3),
        max_ns: mean_ns * 12,
        ..Syscall::default()
    }
}

fn sleep(syscall: &str, label: &str, class: &str, blocked_ns: u64) -> Sleep {
    Sleep {
        syscall: syscall.to_string(),
        label: label.to_string(),
        class: class.to_string(),
        site: "io_schedule+0x46".into(),
        count: 843,
        blocked_ns,
        max_ns: blocked_ns / 100,
        frames: strings(&["io_schedule+0x46"]),
        wakers: vec![waker("softirq", None, 1)],
        ..Sleep::default()
    }
}

fn waker(kind: &str, task: Option<(&str, u32)>, count: u64) -> Waker {
    Waker {
        kind: WakerKind::of(kind).expect("a kind"),
        comm: task.map(|(comm, _)| comm.to_string()),
        tid: task.map(|(_, tid)| tid),
        count,
        ..Waker::default()
    }
}

fn inode_lock(path: &str) -> Resource {
    Resource {
        kind: "rwsem".to_string(),
        name: Some(format!("inode lock of {path}")),
        ..Resource::default()
    }
}

fn owner(certainty: &str, task: Option<(&str, u32)>, count: u64, doing: Option<&str>) -> Owner {
    Owner {
        certainty: Certainty::of(certainty).expect("a certainty"),
        comm: task.map(|(comm, _)| comm.to_string()),
        tid: task.map(|(_, tid)| tid),
        count,
        blocked_ns: count * MS,
        doing: doing.map(str::to_string),
        ..Owner::default()
    }
}

fn link(comm: &str, tid: u32, slept: Option<(u64, &str)>, doing: Option<&str>) -> ChainLink {
    ChainLink {
        comm: comm.to_string(),
        tid: Some(tid),
        waited_ns: Some(slept.map_or(0, |(ns, _)| ns)),
        label_ns: Some(slept.map_or(0, |(ns, _)| ns)),
        label: slept.map(|(_, label)| label.to_string()),
        class: slept.map(|_| "lock".to_string()),
        syscall: slept.map(|_| "openat".to_string()),
        doing: doing.map(str::to_string),
        certainty: Some(Certainty::Exact),
        ..ChainLink::default()
    }
}

/// One chain of each kind: with a third link, with a holder that is not monitored, a cycle.
fn rich_chains() -> Vec<Chain> {
    let mut backup = link("backup", 77, None, Some("page read"));
    (backup.waited_ns, backup.label_ns) = (None, None);
    vec![
        Chain {
            count: 27,
            end: ChainEnd::Complete,
            links: vec![
                link("worker", 801, Some((410 * MS, "inode lock")), None),
                link("worker", 803, Some((405 * MS, "futex")), Some("asleep")),
                link("logger", 804, None, Some("on CPU")),
            ],
            ..Chain::default()
        },
        Chain {
            count: 1,
            end: ChainEnd::Complete,
            links: vec![link("worker", 802, Some((9 * MS, "flock")), None), backup],
            ..Chain::default()
        },
        Chain {
            count: 1,
            end: ChainEnd::Cycle,
            links: vec![
                link("worker", 801, Some((5 * MS, "futex")), None),
                link("worker", 802, Some((5 * MS, "futex")), Some("asleep")),
            ],
            ..Chain::default()
        },
    ]
}

fn thread(pid: u32, tid: u32, comm: &str, wall_ns: u64) -> Thread {
    let part = wall_ns / 10;
    let totals = Totals {
        wall_ns,
        user_cpu_ns: part * 6,
        kernel_cpu_ns: part,
        blocked_ns: part * 2,
        runqueue_ns: part,
        ..Totals::default()
    };
    Thread {
        pid,
        tid,
        comm: comm.to_string(),
        calls: 100,
        totals,
        ..Thread::default()
    }
}

fn rich_sleeps() -> Vec<Sleep> {
    vec![
        Sleep {
            site: "ep_poll+0x38a (fs/eventpoll.c:2095)".into(),
            count: 48_120,
            wakers: vec![
                waker("task", Some(("worker", 801)), 40_000),
                waker("softirq", None, 8_000),
                waker("hardirq", None, 100),
                waker("unknown", None, 20),
            ],
            ..sleep("epoll_wait", "epoll", "idle", 9_050 * MS)
        },
        Sleep {
            site: "folio_wait_bit_common+0x142 (mm/filemap.c:1312)".into(),
            wakers: vec![waker("softirq", None, 840), waker("hardirq", None, 3)],
            call_sites: vec![SleepCallSite {
                frames: strings(&["read_block+0x52 (store.c:210)"]),
                caller: None,
                count: 840,
                blocked_ns: 3_885 * MS,
                ..SleepCallSite::default()
            }],
            ..sleep("pread64", "page read", "disk", 3_890 * MS)
        },
        Sleep {
            count: 160,
            ..sleep("openat", "inode read", "disk", 1_200 * MS)
        },
        Sleep {
            site: "rwsem_down_write_slowpath+0x2a1".into(),
            count: 28,
            wakers: vec![
                waker("task", Some(("worker", 803)), 27),
                waker("unknown", None, 1),
            ],
            waiters_entry_max: Some(4),
            waiters_exit_max: Some(3),
            waiters_scope: Some(WaitersScope::All),
            resource: Some(inode_lock("/srv/spool")),
            resources: vec![
                ResourceShare {
                    resource: inode_lock("/srv/spool"),
                    count: 20,
                    blocked_ns: 400 * MS,
                    ..ResourceShare::default()
                },
                ResourceShare {
                    resource: inode_lock("/srv/log"),
                    count: 8,
                    blocked_ns: 10 * MS,
                    ..ResourceShare::default()
                },
            ],
            owners: vec![
                owner("exact", Some(("worker", 803)), 27, Some("direct I/O")),
                owner("none", None, 1, None),
            ],
            ..sleep("openat", "inode lock", "lock", 410 * MS)
        },
        Sleep {
            site: "futex_wait_queue+0x60".into(),
            count: 1_100,
            wakers: vec![waker("task", Some(("worker", 802)), 1_100)],
            waiters_entry_max: Some(2),
            waiters_exit_max: Some(1),
            waiters_scope: Some(WaitersScope::Monitored),
            ..sleep("futex", "futex", "lock", 600 * MS)
        },
        Sleep {
            count: 3,
            ..sleep("(user)", "page read", "disk", 300 * MS)
        },
    ]
}

fn rich_threads() -> Vec<Thread> {
    let mut threads = vec![thread(800, 800, "server", 10_200 * MS)];
    threads
        .extend((1..4).map(|nth| thread(800, 800 + nth, "worker", (10_100 - u64::from(nth)) * MS)));
    threads
        .iter_mut()
        .for_each(|thread| thread.totals.irq_ns = Some(25 * MS));
    threads
}

/// Calls found by samples, as on kernels that let no function be probed.
fn trigger() -> Trigger {
    Trigger {
        predicate: "syscall == open* && blocked > 1ms".to_string(),
        signal: Some("USR1".to_string()),
        limit_per_second: Some(10),
        fired: 12,
        late: 1,
        suppressed: 3,
        undecided: 1,
        signals_failed: 1,
        unlisted: 11,
        calls: vec![TriggerCall {
            at_ns: 120_000_000,
            pid: 4711,
            tid: 4712,
            comm: "worker".to_string(),
            syscall: "openat".to_string(),
            ret: -2,
            args: vec![0xffff_ff9c, 140_000_000, 0],
            wall_ns: 12_100_000,
            cpu_ns: 60_000,
            blocked_ns: 12_000_000,
            runqueue_ns: 30_000,
            preempted_ns: 10_000,
            throttled_ns: Some(4_000),
            cpu_owner: Some("hog".to_string()),
            irq_ns: Some(1_000),
            spin_ns: Some(2_000),
            sleeps: 2,
            longest_ns: 11_000_000,
            faults_minor: 1,
            faults_major: Some(0),
            label: Some("inode lock".to_string()),
            class: Some("lock".to_string()),
            kernel_frames: strings(&["path_openat+0x1f"]),
            caller: Some("load (cache.c:88)".into()),
            frames: strings(&["__open64+0x42", "load (cache.c:88)"]),
            late: true,
            signal_failed: true,
            ..TriggerCall::default()
        }],
        ..Trigger::default()
    }
}

fn sampled_trace() -> Trace {
    let function = |name: &str, samples, children| TraceFunction {
        function: name.to_string(),
        samples: Some(samples),
        children,
        ..TraceFunction::default()
    };
    Trace {
        method: "sampled".to_string(),
        instead_of: vec![TraceLack {
            method: "fentry".to_string(),
            why: "refused by this kernel".to_string(),
            ..TraceLack::default()
        }],
        period_ns: Some(100_000),
        tree: vec![TraceCall {
            syscall: "pread64".to_string(),
            samples: Some(200),
            functions: vec![function(
                "vfs_read",
                198,
                vec![
                    function("filemap_read", 190, Vec::new()),
                    function("rw_verify_area", 1, Vec::new()),
                ],
            )],
            events: vec![TraceEvent {
                event: "block_rq_issue".to_string(),
                count: 843,
                ..TraceEvent::default()
            }],
            ..TraceCall::default()
        }],
        ..Trace::default()
    }
}

/// A tree of functions that were probed.
pub fn exact_trace() -> Trace {
    let function = |name: &str, total, self_ns, blocked, children| TraceFunction {
        function: name.to_string(),
        entered: Some(12_611),
        returned: Some(12_611),
        total_ns: Some(total),
        self_ns: Some(self_ns),
        blocked_ns: Some(blocked),
        max_ns: Some(total / 12_611),
        samples: None,
        children,
        ..TraceFunction::default()
    };
    Trace {
        method: "kprobe.session".to_string(),
        functions_attached: 1_204,
        depth_max: Some(32),
        denied: vec![TraceDenied {
            why: "never returns".to_string(),
            count: 2,
            functions: strings(&["do_exit", "do_group_exit"]),
            ..TraceDenied::default()
        }],
        lost: TraceLost {
            depth: 12,
            ..TraceLost::default()
        },
        in_interrupts: 3,
        tree: vec![TraceCall {
            syscall: "openat".to_string(),
            total_ns: Some(1_700 * MS),
            functions: vec![function(
                "do_sys_openat2",
                1_700 * MS,
                40 * MS,
                1_610 * MS,
                vec![
                    function("getname", 30 * MS, 30 * MS, 0, Vec::new()),
                    function("do_filp_open", 1_630 * MS, 90 * MS, 1_610 * MS, Vec::new()),
                ],
            )],
            ..TraceCall::default()
        }],
        ..Trace::default()
    }
}

/// A competing process, and a quota.
pub fn cpu_waits() -> Vec<CpuWait> {
    let wait = |kind: &str, part: &str, ns: u64| CpuWait {
        syscall: "(user)".to_string(),
        part: CpuWaitPart::of(part),
        kind: CpuWaitKind::of(kind).expect("a kind"),
        turns: 3,
        ns,
        max_ns: ns / 2,
        cpus_allowed: Some(1),
        ..CpuWait::default()
    };
    let hog = |part: &str, ns: u64| CpuWait {
        comm: Some("hog".to_string()),
        pid: Some(7),
        ..wait("task", part, ns)
    };
    let quota = CpuWait {
        group: Some("limited".to_string()),
        quota_ns: Some(20 * MS),
        period_ns: Some(100 * MS),
        ..wait("quota", "preempted", 300 * MS)
    };
    vec![
        hog("preempted", 400 * MS),
        quota,
        hog("runqueue", 100 * MS),
        wait("untold", "preempted", MS),
    ]
}

pub fn samples() -> Samples {
    Samples {
        period_ns: 5_025_125,
        total: 1000,
        in_calls: 90,
        in_interrupts: 3,
        lost: 4,
        functions: vec![
            SampledFunction {
                function: "fill".to_string(),
                place: Some("fill.c:3".to_string()),
                samples: 750,
                in_calls: 0,
                inside: None,
                ..SampledFunction::default()
            },
            SampledFunction {
                function: "save".to_string(),
                place: None,
                samples: 100,
                in_calls: 90,
                inside: Some("write".to_string()),
                ..SampledFunction::default()
            },
        ],
        stacks: vec![SampledStack {
            comm: "program".to_string(),
            syscall: "(user)".to_string(),
            frames: strings(&["fill (fill.c:3)", "main (fill.c:9)"]),
            samples: 750,
            ..SampledStack::default()
        }],
        in_further_stacks: 250,
        ..Samples::default()
    }
}
