// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report distinguishes waits for work from other waits by one rule, in each of its parts.

use debox_history::History;
use debox_model::history::{Call, Sleep};
use debox_report::{analyze, FindingKind, Report, Rest};

use crate::common::{call, sleep, write};

const MS: u64 = 1_000_000;

/// A futex that nobody is known to hold.
fn free(ns: u64) -> Sleep {
    Sleep {
        owner_certainty: None,
        owner_tid: None,
        owner_comm: None,
        owner_doing: None,
        resource: None,
        ..sleep("futex", "lock", ns)
    }
}

/// For a second, a worker of a pool waits for work 50 times, and the main thread for a disk and for a held futex.
fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for round in 0..50u64 {
        let start = 10_000 + round * 20 * MS;
        let held = call(
            "futex",
            start + 10 * MS,
            1_000,
            vec![sleep("futex", "lock", 2 * MS)],
        );
        let read = call("read", start, 1_000, vec![sleep("page read", "disk", MS)]);
        let parked = call("futex", start, 1_000, vec![free(20 * MS - 2_000)]);
        calls.extend([
            read,
            held,
            Call {
                tid: 101,
                comm: "worker".into(),
                ..parked
            },
        ]);
    }
    calls
}

fn report_of(calls: &[Call]) -> Report {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, calls, 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    analyze(&history, 2, &|_| {}).expect("a report").report
}

#[test]
fn waits_for_work_are_the_same_everywhere() {
    let report = report_of(&calls());
    let rests = 50 * (20 * MS - 2_000);
    let held = 50 * 2 * MS;
    let worker = report.threads.iter().find(|thread| thread.tid == 101);
    let worker = worker.expect("the worker");
    assert_eq!(
        (worker.rest, worker.resting_ns),
        (Some(Rest::AtRest), rests)
    );
    let futex = report.calls.iter().find(|call| call.name == "futex");
    assert_eq!(futex.expect("futex").resting_ns, rests);
    let marked = report.waits.iter().filter(|wait| wait.is_rest);
    assert_eq!(marked.map(|wait| wait.blocked_ns).sum::<u64>(), rests);
    let part = |name: &str| {
        let part = report.timeline.parts.iter().find(|part| part.name == name);
        part.map_or(0, |part| part.ns.iter().sum::<u64>())
    };
    assert_eq!(
        (part("blocked: idle"), part("blocked: lock")),
        (rests, held)
    );
    let json = serde_json::to_value(&report.flame).expect("JSON");
    let mut own = [0, 0];
    let mut frames: Vec<&serde_json::Value> = vec![&json["roots"]];
    while let Some(list) = frames.pop() {
        for frame in list.as_array().into_iter().flatten() {
            frames.push(&frame["children"]);
            for one in frame["own"].as_array().into_iter().flatten() {
                let is_rest = one["is_rest"].as_bool().expect("a flag");
                own[usize::from(is_rest)] += one["blocked_ns"].as_u64().expect("ns");
            }
        }
    }
    assert_eq!(own, [held + 50 * MS, rests]);
    // The headline without them is about the lock and the disk.
    let active = report.active.expect("a headline");
    let of = |cause: &str| {
        let share = active.shares.iter().find(|share| share.cause == cause);
        share.map(|share| (share.ns, share.count))
    };
    assert_eq!(of("futex"), Some((held, Some(50))));
    assert_eq!(of("page read"), Some((50 * MS, Some(50))));
    assert_eq!(active.idle_ns, rests);
    assert!(
        report.active_text[0].contains("held by helper"),
        "{:?}",
        report.active_text
    );
}

/// A wait whose stack goes through a function.
fn through(tid: u32, at: u64, function: &str, ns: u64, waker: u32) -> Call {
    let wait = Sleep {
        waker_tid: Some(waker),
        waker_comm: Some("connection".into()),
        resource: Some(format!("{tid:#x} of process 100").into()),
        ..free(ns)
    };
    Call {
        tid,
        comm: "connection".into(),
        caller: Some(format!("{function}+0x1 (server)").into()),
        stack: Some(format!("start_thread (pthread_create.c:442);{function}+0x1 (server)").into()),
        ..call("futex", at, 1_000, vec![wait])
    }
}

/// Two connections wait for requests and, in some of them, for a row; the second one also for the first one's.
#[test]
fn a_thread_that_waits_for_requests_and_for_locks_rests_in_the_former_only() {
    const WORK: &str = "wait_for_request";
    const LOCK: &str = "dispatch_command(THD*)";
    let mut calls = Vec::new();
    for round in 0..10u64 {
        let start = 10_000 + round * 200 * MS;
        calls.extend([
            through(101, start, WORK, 100 * MS, 7),
            through(101, start + 100 * MS, LOCK, 60 * MS, 9),
            through(102, start, WORK, 100 * MS, 7),
            through(102, start + 100 * MS, LOCK, 70 * MS, 101),
        ]);
    }
    let report = report_of(&calls);
    for tid in [101, 102] {
        let thread = report.threads.iter().find(|thread| thread.tid == tid);
        let thread = thread.expect("a thread");
        assert_eq!((thread.rest, thread.resting_ns), (None, 1_000 * MS));
    }
    let sum = |is_rest: bool| {
        let waits = report.waits.iter().filter(|wait| wait.is_rest == is_rest);
        waits.map(|wait| wait.blocked_ns).sum::<u64>()
    };
    assert_eq!((sum(true), sum(false)), (2_000 * MS, 1_300 * MS));
    // Until the first one's own wait ended, it was the holder of that row that held both up.
    let held_up = report.waits.iter().filter(|wait| !wait.is_rest);
    let held_up = held_up.flat_map(|wait| &wait.held_up_by);
    let by = |tid: u32| {
        let of = held_up.clone().filter(|by| by.tid == tid);
        of.map(|by| by.ns / MS).sum::<u64>()
    };
    assert_eq!((by(9), by(101)), (1_200, 100));
}

/// Two statements wait for a row, and then their threads in the server's cache until the recording ends, as a pool's do.
/// Together these look like waits for work.
#[test]
fn a_wait_in_a_request_is_found_beside_all_that_rest() {
    const CACHE: &str = "do_handle_one_connection(CONNECT*, bool)";
    let mut calls = Vec::new();
    for tid in [101, 102] {
        calls.push(through(tid, 10_000, "dispatch_command(THD*)", 120 * MS, 9));
        let mut cached = through(tid, 200 * MS, CACHE, 800 * MS, 9);
        cached.in_flight = true;
        let wait = &mut cached.sleeps[0];
        (wait.waker_kind, wait.waker_tid, wait.waker_comm) = ("none".into(), None, None);
        calls.push(cached);
    }
    for tid in 103..108 {
        let task = |at| {
            through(
                tid,
                at,
                "tpool::thread_pool_generic::wait_for_tasks()",
                490 * MS,
                9,
            )
        };
        calls.extend([task(10_000), task(500 * MS)]);
    }
    let connections = sleep("poll", "idle", 900 * MS);
    calls.push(call("poll", 20_000, 1_000, vec![connections]));
    let report = report_of(&calls);
    let waits = report
        .waits
        .iter()
        .filter(|wait| !wait.is_rest && wait.label == "futex");
    let waits: Vec<(u32, bool)> = waits.map(|wait| (wait.tid, wait.is_at_work)).collect();
    assert_eq!(waits, [(101, true), (102, true)]);
    let headline = report.headline.expect("a headline");
    assert!(headline.shares.iter().all(|share| share.cause != "futex"));
    let active = report.active.expect("a headline");
    let first = &active.shares[0];
    let caller = first.caller.as_ref().map(ToString::to_string);
    assert_eq!((first.cause.as_str(), first.ns), ("futex", 240 * MS));
    assert!(caller.is_some_and(|caller| caller.contains("dispatch_command")));
}

/// A Java monitor: the futex is the thread's own and says nothing.
#[test]
fn waits_in_functions_that_get_locks_are_no_rest() {
    let monitor = |round: u64| {
        let at = 10_000 + round * 100 * MS;
        through(101, at, "ObjectMonitor::EnterI(JavaThread*)", 90 * MS, 9)
    };
    let calls: Vec<Call> = (0..10).map(monitor).collect();
    let report = report_of(&calls);
    assert_eq!(report.threads[0].rest, None);
    assert!(report
        .waits
        .iter()
        .all(|wait| wait.is_lock && !wait.is_rest));
    let active = report.active.expect("a headline");
    assert!(active
        .shares
        .iter()
        .any(|share| share.cause == "futex" && share.ns == 900 * MS));
}

/// A worker that had work before is at rest. One that only waits may be stuck.
#[test]
fn hanging_calls_of_threads_at_rest_are_no_findings() {
    let mut calls = calls();
    let mut hang = |tid: u32, comm: &str, ns: u64, mut wait: Sleep| {
        let start = 1000 * MS - ns;
        wait.begin_ns = start + 1_000;
        (wait.waker_kind, wait.waker_tid, wait.waker_comm) = ("none".into(), None, None);
        calls.push(Call {
            tid,
            comm: comm.into(),
            in_flight: true,
            ..call("futex", start, 1_000, vec![wait])
        });
    };
    hang(101, "worker", 15 * MS, free(15 * MS));
    hang(102, "unused", 990 * MS, free(990 * MS));
    hang(103, "blocked", 30 * MS, sleep("futex", "lock", 30 * MS));
    let report = report_of(&calls);
    let hanging = report.findings.iter();
    let hanging: Vec<&str> = hanging
        .filter(|finding| finding.kind == FindingKind::InFlight)
        .map(|finding| &*finding.text)
        .collect();
    let [first, last] = hanging[..] else {
        panic!("{hanging:#?}");
    };
    assert!(first.contains("(blocked)"), "{first}");
    // It waited for longer, but perhaps only for work.
    assert!(last.contains("(unused)"), "{last}");
}

/// A time that is selected on the page selects waits by these.
#[test]
fn waits_know_when_the_first_began_and_the_last_ended() {
    let report = report_of(&calls());
    let read = report.waits.iter().find(|wait| wait.label == "page read");
    let read = read.expect("the reads");
    assert!(
        read.first_ns < MS && read.last_ns > 980 * MS && read.last_ns < 1000 * MS,
        "{read:?}"
    );
}

/// Node with `execSync`: its loop waits at instance 9, the inner ones at others. Another thread has one client only.
#[test]
fn what_keeps_a_loop_from_its_events_is_found() {
    let mut calls = Vec::new();
    for round in 0..10u64 {
        let start = 10_000 + round * 100 * MS;
        let idle = |at: u64, instance: u64, ns: u64| Call {
            args: [instance, 0, 0],
            ..call(
                "epoll_wait",
                start + at,
                1_000,
                vec![sleep("epoll", "idle", ns)],
            )
        };
        let on = |name: &str, fd: u64| Call {
            args: [fd, 0, 0],
            ..call(name, start + 21 * MS, 1_000, vec![])
        };
        let fsync = call(
            "fsync",
            start + 70 * MS,
            1_000,
            vec![sleep("fsync writeback", "disk", 5 * MS)],
        );
        let mut of_loop = vec![
            idle(0, 9, 20 * MS),
            on("read", 11),
            on("write", 11),
            on("read", 12),
            on("write", 12),
            idle(22 * MS, 20 + round % 3, 40 * MS),
            fsync.clone(),
        ];
        let mut of_other = vec![idle(0, 9, 20 * MS), on("read", 11), on("write", 11), fsync];
        for call in &mut of_loop {
            (call.pid, call.tid) = (200, 200);
        }
        for call in &mut of_other {
            (call.pid, call.tid) = (300, 300);
        }
        calls.extend(of_loop);
        calls.extend(of_other);
    }
    let report = report_of(&calls);
    let [found] = &report.loops[..] else {
        panic!("{:#?}", report.loops);
    };
    assert_eq!((found.tid, found.waits), (200, 10));
    assert_eq!(found.blocked_ns, 10 * 45 * MS);
    let causes = found.causes.iter();
    let causes: Vec<_> = causes
        .map(|cause| (cause.is_inner_loop, cause.count, cause.blocked_ns / MS))
        .collect();
    assert_eq!(causes, [(true, 10, 400), (false, 10, 50)]);
    let turn = found.longest_turn_ns / MS;
    assert!((75..=85).contains(&turn), "{turn}");
    // Between ten waits for its events.
    assert_eq!(found.long_turns, 9);
    let innermost = found.causes[0].stack.last();
    assert_eq!(
        innermost.map(String::as_str),
        Some("serve+0x1f (cache.c:88)")
    );
    let text = report
        .findings
        .iter()
        .find(|finding| finding.text.contains("event loop"));
    let text = &text.expect("a finding").text;
    assert!(
        text.contains("450 ms") && text.contains("another loop inside it"),
        "{text}"
    );
    assert!(text.contains("9 turns took 10 ms or more"), "{text}");
    let first = report.loop_text.expect("the loop is the answer");
    let said = "was blocked for 450 ms, mostly by another loop inside it in epoll_wait";
    assert!(first.ends_with(said), "{first}");
    // By process: both waited for the disk, and neither for idle waits.
    let row = report
        .by_process
        .rows
        .iter()
        .find(|row| row.pid == Some(300))
        .expect("a row");
    assert_eq!((row.threads, row.causes[0].blocked_ns), (1, 50 * MS));
    assert_eq!(report.by_unit.rows.len(), 1);
}
