//! Histories for tests: some as they are recorded, some as no recorder would write them.

use std::path::Path;
use std::time::Duration;

use debox_history::{History, Limits, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, CpuOwner, CpuWait, Sleep, Text, UserLevel};
use proptest::prelude::*;

use crate::{export, Format, Options, Summary, Weight};

pub const OFFSET: i64 = 1_700_000_000_000_000_000;

pub fn meta() -> Meta {
    Meta {
        schema: SCHEMA.to_string(),
        writer: "test".to_string(),
        host: "here".to_string(),
        kernel: "6.12".to_string(),
        command: vec!["true".to_string()],
        cpus: 2,
        detail: vec!["sleeps".to_string()],
        realtime_offset_ns: OFFSET,
        started_ns: 1000,
        complete: true,
        ..Meta::default()
    }
}

pub fn write(path: &Path, meta: Meta, calls: &[Call]) -> History {
    let limits = Limits {
        group_rows: 7,
        tail_every: Duration::from_secs(3600),
    };
    let mut writer = Writer::create(path, meta, limits).unwrap();
    for call in calls {
        writer.append(call).unwrap();
    }
    writer.finish().unwrap();
    History::open(&[path]).unwrap()
}

pub fn options(format: Format, weight: Weight) -> Options {
    Options {
        format,
        weight,
        filter: None,
        from_ns: None,
        to_ns: None,
    }
}

pub fn exported(history: &History, options: &Options) -> anyhow::Result<(Vec<u8>, Summary)> {
    let mut bytes = Vec::new();
    let summary = export(history, options, &mut bytes, &mut |_| {})?;
    assert_eq!(summary.bytes, bytes.len() as u64);
    Ok((bytes, summary))
}

/// Exports calls from a temporary history file.
pub fn export_of(calls: &[Call], options: &Options) -> anyhow::Result<(Vec<u8>, Summary)> {
    let directory = tempfile::tempdir().unwrap();
    exported(
        &write(&directory.path().join("a.parquet"), meta(), calls),
        options,
    )
}

const TEXTS: &[&str] = &[
    "read",
    "",
    "sch;laf;ä",
    "pipe empty",
    "f+0x1f (a.c:3)",
    "\n1 2",
    ";;",
];

pub fn text() -> impl Strategy<Value = Text> {
    prop::sample::select(TEXTS).prop_map(Into::into)
}

fn maybe_text() -> impl Strategy<Value = Option<Text>> {
    prop::option::of(text())
}

fn sleep(times: BoxedStrategy<u64>) -> impl Strategy<Value = Sleep> {
    let times = (times.clone(), times.clone(), times);
    let words = (text(), text(), text(), maybe_text());
    let kind = prop::sample::select(&["task", "hardirq", "unknown"][..]);
    let waker = (kind, prop::option::of(1u32..6), maybe_text());
    let owner = (
        maybe_text(),
        prop::option::of(any::<u32>()),
        maybe_text(),
        maybe_text(),
    );
    (times, words, maybe_text(), waker, owner).prop_map(|(times, words, resource, waker, owner)| {
        Sleep {
            begin_ns: times.0,
            blocked_ns: times.1,
            runqueue_ns: times.2,
            label: words.0,
            class: words.1,
            site: words.2,
            stack: words.3,
            resource_kind: resource.clone(),
            resource,
            waker_kind: waker.0.into(),
            waker_tid: waker.1,
            waker_comm: waker.2,
            owner_certainty: owner.0,
            owner_tid: owner.1,
            owner_comm: owner.2,
            owner_doing: owner.3,
            waiters_entry: owner.1,
            waiters_exit: None,
        }
    })
}

/// A call with unrelated times.
pub fn wild_call() -> impl Strategy<Value = Call> {
    call((0u64..1 << 60).boxed())
}

fn call(times: BoxedStrategy<u64>) -> impl Strategy<Value = Call> {
    let who = (1u32..4, 1u32..6, text(), text(), -1i32..600);
    let sleeps = prop::collection::vec(sleep(times.clone()), 0..4);
    let times = prop::collection::vec(times, 7);
    let ends = (any::<i64>(), any::<[u64; 3]>(), any::<[bool; 3]>());
    let stacks = (maybe_text(), maybe_text());
    (who, times, ends, stacks, sleeps).prop_map(|(who, times, ends, stacks, sleeps)| {
        let begin_ns = times[0];
        let later = |sleep: Sleep| Sleep {
            begin_ns: begin_ns + sleep.begin_ns,
            ..sleep
        };
        Call {
            pid: who.0,
            tid: who.1,
            comm: who.2,
            name: who.3,
            number: who.4,
            ia32: ends.2[0],
            ordinal: times[6],
            start_ns: begin_ns,
            wall_ns: times[1],
            budget: Budget {
                cpu_ns: times[2],
                blocked_ns: times[3],
                runqueue_ns: times[4],
                preempted_ns: times[5],
                irq_ns: ends.2[0].then_some(7),
            },
            cpu_wait: ends.2[0].then(|| CpuWait {
                throttled_ns: times[4],
                owner: ends.2[1].then(|| CpuOwner {
                    kind: "task".into(),
                    pid: Some(7),
                    comm: Some("hog".into()),
                    ns: times[5],
                }),
            }),
            spin_ns: 3,
            in_flight: false,
            user: ends.2[1].then_some(UserLevel {
                wall_ns: times[1],
                away_ns: times[2],
                calls_ns: times[3],
            }),
            ret: ends.0,
            args: ends.1,
            faults_minor: 1,
            faults_major: 0,
            read_bytes: None,
            write_bytes: Some(4096),
            restarted: ends.2[1],
            partial: ends.2[2],
            caller: stacks.0,
            stack: stacks.1,
            sleeps: sleeps.into_iter().map(later).collect(),
            sleeps_left_out: 0,
        }
    })
}

/// Calls as they are recorded: those of a thread follow each other, sleeps lie within their calls,
/// and the parts of the budget match the sums of the sleeps.
pub fn calls() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec(call((0u64..100_000).boxed()), 0..40).prop_map(|calls| {
        let mut now = 1000;
        let fitted = calls.into_iter().map(|mut call| {
            let begin = now;
            call.start_ns = begin;
            now += call.budget.cpu_ns;
            (call.budget.blocked_ns, call.budget.runqueue_ns) = (0, 0);
            for sleep in &mut call.sleeps {
                sleep.begin_ns = now;
                now += sleep.blocked_ns + sleep.runqueue_ns;
                call.budget.blocked_ns += sleep.blocked_ns;
                call.budget.runqueue_ns += sleep.runqueue_ns;
            }
            call.budget.preempted_ns = 0;
            call.wall_ns = now - begin;
            call
        });
        fitted.collect()
    })
}
