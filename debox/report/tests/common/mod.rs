//! A small history of a server that has everything a report shows, including hostile names.

use std::path::Path;
use std::time::Duration;

use debox_history::{Limits, Lost, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, Sleep, UserLevel};

/// Must stay text wherever it is shown.
pub const HOSTILE: &str = "</script><img src=x onerror=document.title=1>\u{1b}[31m";

pub fn meta() -> Meta {
    Meta {
        schema: SCHEMA.to_string(),
        writer: "test".to_string(),
        host: "here".to_string(),
        kernel: "6.12".to_string(),
        command: vec!["server".to_string(), HOSTILE.to_string()],
        cpus: 2,
        detail: vec!["sleeps".to_string()],
        stacks_from_ns: 10_000,
        user_level: true,
        realtime_offset_ns: 1_700_000_000_000_000_000,
        started_ns: 1_000,
        complete: true,
        lost: Lost {
            records: 7,
            ..Lost::default()
        },
        ..Meta::default()
    }
}

pub fn call(name: &str, start_ns: u64, cpu_ns: u64, sleeps: Vec<Sleep>) -> Call {
    let blocked_ns = sleeps.iter().map(|sleep| sleep.blocked_ns).sum();
    Call {
        pid: 100,
        tid: 100,
        comm: HOSTILE.into(),
        name: name.into(),
        number: if name == "(user)" { -1 } else { 1 },
        ordinal: 1,
        start_ns,
        wall_ns: cpu_ns + blocked_ns,
        budget: Budget {
            cpu_ns,
            blocked_ns,
            runqueue_ns: 0,
            preempted_ns: 0,
            irq_ns: None,
        },
        caller: Some("serve+0x1f (cache.c:88)".into()),
        stack: Some(format!("_start;main;{HOSTILE};serve+0x1f (cache.c:88)").into()),
        sleeps,
        ..Call::default()
    }
}

pub fn sleep(label: &str, class: &str, blocked_ns: u64) -> Sleep {
    let owned = class == "lock";
    Sleep {
        blocked_ns,
        label: label.into(),
        class: class.into(),
        site: "somewhere".into(),
        stack: Some("do_syscall_64;somewhere;schedule".into()),
        resource: owned.then(|| "inode lock of /srv/x".into()),
        waker_kind: "task".into(),
        waker_tid: Some(4711),
        waker_comm: Some("helper".into()),
        owner_certainty: owned.then(|| "exact".into()),
        owner_tid: owned.then_some(4711),
        owner_comm: owned.then(|| "helper".into()),
        owner_doing: owned.then(|| "page read".into()),
        ..Sleep::default()
    }
}

/// 2000 rounds: a wait for events, an open that occasionally waits for a lock, and an mmap whose cost
/// grows.
pub fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    let mut now = 10_000;
    for round in 0..2000u64 {
        let noise = round * 7919 % 101;
        let mut add = |mut call: Call| {
            for sleep in &mut call.sleeps {
                sleep.begin_ns = now + 100;
            }
            call.start_ns = now;
            now += call.wall_ns + 1_000;
            calls.push(call);
        };
        add(call(
            "epoll_wait",
            0,
            800,
            vec![sleep("epoll", "idle", 40_000)],
        ));
        let waits = if round % 20 == 0 {
            vec![sleep("inode lock", "lock", 200_000 + noise)]
        } else {
            Vec::new()
        };
        let open = call("openat", 0, 3_000 + noise, waits);
        // Preempted on the way to two of the calls.
        let away_ns = if round % 1000 == 7 { 5_000_000 } else { 0 };
        add(Call {
            user: Some(UserLevel {
                wall_ns: open.wall_ns + 150 + away_ns,
                away_ns,
                calls_ns: 0,
            }),
            ..open
        });
        add(call("mmap", 0, 1_000 + noise + 10 * round, Vec::new()));
        if round % 100 == 0 {
            add(call(
                "(user)",
                0,
                500,
                vec![sleep("page read", "disk", 90_000)],
            ));
        }
    }
    calls
}

pub fn write(path: &Path, calls: &[Call], group_rows: usize) {
    let limits = Limits {
        group_rows,
        tail_every: Duration::from_secs(3600),
    };
    let mut writer = Writer::create(path, meta(), limits).expect("the file can be made");
    for call in calls {
        writer.append(call).expect("a row");
    }
    writer.finish().expect("the end");
}
