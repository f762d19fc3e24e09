// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report distinguishes waits for work from other waits by one rule, in each of its parts.

use debox_history::History;
use debox_model::history::{Call, Sleep};
use debox_report::{analyze, Report, Rest};

use crate::common::{call, sleep, write};

const MS: u64 = 1_000_000;

/// For a second, a worker of a pool waits for work 50 times, and the main thread for a disk and for a held futex.
fn report() -> Report {
    let free = |ns| Sleep {
        owner_certainty: None,
        owner_tid: None,
        owner_comm: None,
        owner_doing: None,
        resource: None,
        ..sleep("futex", "lock", ns)
    };
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
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls, 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    analyze(&history, 2, &|_| {}).expect("a report").report
}

#[test]
fn waits_for_work_are_the_same_everywhere() {
    let report = report();
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

/// A time that is selected on the page selects waits by these.
#[test]
fn waits_know_when_the_first_began_and_the_last_ended() {
    let report = report();
    let read = report.waits.iter().find(|wait| wait.label == "page read");
    let read = read.expect("the reads");
    assert!(
        read.first_ns < MS && read.last_ns > 980 * MS && read.last_ns < 1000 * MS,
        "{read:?}"
    );
}
