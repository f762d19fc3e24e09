//! Files in any state: complete, truncated, still being written, and not DeBox's at all.

use std::fs;
use std::path::Path;
use std::time::Duration;

use debox_history::{repair, tail_of, History, Limits, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, CpuOwner, CpuWait, Sleep, UserLevel};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const OFFSET: i64 = 1_700_000_000_000_000_000;

fn meta() -> Meta {
    Meta {
        schema: SCHEMA.to_string(),
        writer: "test".to_string(),
        host: "here".to_string(),
        kernel: "6.12".to_string(),
        command: vec!["true".to_string()],
        cpus: 2,
        detail: vec!["basic".to_string()],
        realtime_offset_ns: OFFSET,
        started_ns: 1,
        ..Meta::default()
    }
}

fn limits(group_rows: usize) -> Limits {
    Limits {
        group_rows,
        tail_every: Duration::ZERO,
    }
}

fn text() -> impl Strategy<Value = std::rc::Rc<str>> {
    prop_oneof![Just("read"), Just(""), Just("schlaf;ä"), Just("pipe empty")].prop_map(Into::into)
}

fn sleep() -> impl Strategy<Value = Sleep> {
    let times = (0u64..1 << 40, 0u64..1 << 50, any::<u64>());
    let words = (text(), text(), text(), prop::option::of(text()));
    let resource = (prop::option::of(text()), prop::option::of(text()));
    let waker = (
        text(),
        prop::option::of(any::<u32>()),
        prop::option::of(text()),
    );
    let owner = (
        prop::option::of(text()),
        prop::option::of(any::<u32>()),
        prop::option::of(text()),
        prop::option::of(text()),
    );
    let waiters = (
        prop::option::of(any::<u32>()),
        prop::option::of(any::<u32>()),
    );
    (times, words, resource, waker, owner, waiters).prop_map(
        |(times, words, resource, waker, owner, waiters)| Sleep {
            begin_ns: times.0,
            blocked_ns: times.1,
            runqueue_ns: times.2,
            label: words.0,
            class: words.1,
            site: words.2,
            stack: words.3,
            resource_kind: resource.0,
            resource: resource.1,
            waker_kind: waker.0,
            waker_tid: waker.1,
            waker_comm: waker.2,
            owner_certainty: owner.0,
            owner_tid: owner.1,
            owner_comm: owner.2,
            owner_doing: owner.3,
            waiters_entry: waiters.0,
            waiters_exit: waiters.1,
        },
    )
}

fn cpu_wait() -> impl Strategy<Value = CpuWait> {
    let process = (any::<u32>(), text());
    let owner = (text(), prop::option::of(process), any::<u64>());
    let owner = owner.prop_map(|(kind, process, ns)| {
        let (pid, comm) = process.unzip();
        CpuOwner {
            kind,
            pid,
            comm,
            ns,
        }
    });
    let wait = (any::<u64>(), prop::option::of(owner));
    wait.prop_map(|(throttled_ns, owner)| CpuWait {
        throttled_ns,
        owner,
    })
}

fn call() -> impl Strategy<Value = Call> {
    let who = (any::<u32>(), any::<u32>(), text(), text(), -1i32..600);
    let times = (
        0u64..1 << 50,
        any::<u64>(),
        any::<[u64; 5]>(),
        any::<bool>(),
    );
    let ends = (any::<i64>(), any::<[u64; 3]>(), any::<[u32; 3]>());
    let io = (
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
    );
    let flags = any::<[bool; 5]>();
    let stacks = (
        prop::option::of(text()),
        prop::option::of(text()),
        prop::option::of(cpu_wait()),
    );
    let sleeps = prop::collection::vec(sleep(), 0..4);
    (who, times, ends, io, flags, stacks, sleeps).prop_map(
        |(who, times, ends, io, flags, stacks, sleeps)| {
            let start_ns = times.0;
            let later = |mut sleep: Sleep| {
                sleep.begin_ns += start_ns;
                sleep
            };
            Call {
                pid: who.0,
                tid: who.1,
                comm: who.2,
                name: who.3,
                number: who.4,
                ia32: flags[0],
                ordinal: times.1,
                start_ns,
                wall_ns: times.2[0],
                budget: Budget {
                    cpu_ns: times.2[1],
                    blocked_ns: times.2[2],
                    runqueue_ns: times.2[3],
                    preempted_ns: times.2[4],
                    irq_ns: times.3.then_some(7),
                },
                cpu_wait: stacks.2,
                spin_ns: 3,
                in_flight: flags[3],
                ret: if flags[3] { 0 } else { ends.0 },
                args: ends.1,
                faults_minor: ends.2[0],
                faults_major: ends.2[1],
                read_bytes: io.0,
                write_bytes: io.1,
                restarted: flags[1],
                partial: flags[2],
                caller: stacks.0,
                stack: stacks.1,
                user: flags[4].then_some(UserLevel {
                    wall_ns: times.2[0],
                    away_ns: times.2[1],
                    calls_ns: times.2[2],
                }),
                sleeps: sleeps.into_iter().map(later).collect(),
                sleeps_left_out: ends.2[2],
            }
        },
    )
}

#[test]
fn what_is_blank_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = Writer::create(&path, meta(), limits(2)).unwrap();
    let plain = Call {
        wall_ns: 7,
        ..Call::default()
    };
    let other = Call {
        spin_ns: 1,
        in_flight: true,
        sleeps: vec![Sleep::default()],
        ..plain.clone()
    };
    for call in [&plain, &plain, &plain, &other] {
        writer.append(call).unwrap();
    }
    writer.finish().unwrap();
    let history = History::open(&[&path]).unwrap();
    let groups = history.groups();
    let blank = |column| [groups[0].is_blank(column), groups[1].is_blank(column)];
    assert_eq!(blank("spin_ns"), [true, false]);
    assert_eq!(blank("in_flight"), [true, false]);
    assert_eq!(blank("sleeps.begin_ns"), [true, false]);
    assert_eq!(blank("sleeps.owner_comm"), [true, true]);
    assert_eq!(blank("irq_ns"), [true, true]);
    assert_eq!(blank("wall_ns"), [false, false]);
    // The column has no statistics.
    assert_eq!(blank("pid"), [false, false]);
}

#[test]
fn groups_of_another_time_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
    for at in 0..100u64 {
        let call = Call {
            start_ns: 1_000 * at,
            ..Call::default()
        };
        writer.append(&call).unwrap();
    }
    writer.finish().unwrap();
    let history = History::open(&[&path]).unwrap();
    let offset = i128::from(history.files[0].meta.realtime_offset_ns);
    for (from, to, read) in [
        (25_000, 41_000, 30), // groups are read as a whole
        (0, 10_000, 10),
        (9_500, 9_900, 0),
        (99_000, i128::MAX - offset, 10),
        (i128::MIN - offset.min(0), 0, 0),
    ] {
        let mut rows = history.calls_within(from + offset..to + offset);
        let starts: Vec<u64> = rows.by_ref().map(|row| row.unwrap().1.start_ns).collect();
        assert_eq!(starts.len(), read, "{from} to {to}");
        assert_eq!(rows.skipped(), 100 - read as u64);
        let wanted = (0..100u64).map(|at| 1_000 * at);
        let wanted = wanted.filter(|at| from <= i128::from(*at) && i128::from(*at) < to);
        assert!(wanted.clone().all(|at| starts.contains(&at)));
    }
}

/// A file from before `in_flight`, and what a program measured.
#[test]
fn a_file_without_later_columns_is_read_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new.parquet");
    let old = directory.path().join("old.parquet");
    let call = Call {
        wall_ns: 7,
        ret: -2,
        ..Call::default()
    };
    let mut writer = Writer::create(&new, meta(), limits(2)).unwrap();
    writer.append(&call).unwrap();
    writer.finish().unwrap();
    let history = History::open(&[&new]).unwrap();
    let names: Vec<String> = debox_history::schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .filter(|name| name != "in_flight" && !name.starts_with("user_"))
        .filter(|name| name != "throttled_ns" && !name.starts_with("cpu_owner"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (_, batch) = history.batches(&names).next().unwrap().unwrap();
    let described = KeyValue::new("debox.history".into(), serde_json::to_string(&meta()).ok());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![described]));
    let file = fs::File::create(&old).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    assert_eq!(read(&old), std::slice::from_ref(&call));
    let history = History::open(&[&old]).unwrap();
    assert!(history.groups()[0].is_blank("in_flight"));
    assert!(history.groups()[0].is_blank("user_ns"));
    // The file is not complete: it is rewritten with all columns.
    assert_eq!(repair(&old).unwrap().map(|repaired| repaired.rows), Some(1));
    assert_eq!(read(&old), [call]);
}

fn read(path: &Path) -> Vec<Call> {
    let history = History::open(&[path]).unwrap();
    let calls: Vec<Call> = history.calls().map(|call| call.unwrap().1).collect();
    assert_eq!(history.rows(), calls.len() as u64);
    calls
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written can be read, whatever the groups are; a reader beside the writer can read at
    /// any time what has been written so far.
    #[test]
    fn what_is_written_is_read(calls in prop::collection::vec(call(), 0..40), group in 1usize..50) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let mut writer = Writer::create(&path, meta(), limits(group)).unwrap();
        prop_assert_eq!(read(&path), vec![]);
        for (index, call) in calls.iter().enumerate() {
            writer.append(call).unwrap();
            writer.settle();
            writer.tick().unwrap();
            prop_assert_eq!(&read(&path), &calls[..=index]);
        }
        prop_assert_eq!(writer.finish().unwrap().rows, calls.len() as u64);
        prop_assert_eq!(read(&path), calls);
        prop_assert!(!tail_of(&path).exists());
    }

    /// A file that was cut anywhere yields the groups that are complete, or an error.
    #[test]
    fn a_cut_file_gives_whole_groups(calls in prop::collection::vec(call(), 1..30), at in 0.0..1.0) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
        for call in &calls {
            writer.append(call).unwrap();
        }
        drop(writer);
        let length = fs::metadata(&path).unwrap().len();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len((length as f64 * at) as u64).unwrap();
        match History::open(&[&path]) {
            Err(error) => prop_assert!(format!("{error:#}").contains("a.parquet"), "{error:#}"),
            Ok(history) => {
                prop_assert_eq!(history.rows() % 10, 0);
                let got: Vec<Call> = history.calls().map(|call| call.unwrap().1).collect();
                prop_assert_eq!(&got[..], &calls[..got.len()]);
            }
        }
    }

    /// Bytes changed anywhere cause an error or other values, never a crash.
    #[test]
    fn damage_is_an_error(calls in prop::collection::vec(call(), 1..30), at in 0.0..1.0, to: u8) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
        for call in &calls {
            writer.append(call).unwrap();
        }
        writer.finish().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let place = (bytes.len() as f64 * at) as usize;
        bytes[place] = to;
        fs::write(&path, bytes).unwrap();
        if let Ok(history) = History::open(&[&path]) {
            for call in history.calls() {
                if call.is_err() {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_not_ours_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    for (bytes, reason) in [
        (&b""[..], "is not a Parquet file"),
        (b"PAR", "is not a Parquet file"),
        (b"PAR1", "ends before its first footer"),
        (b"{\"a\": 1}\n", "is not a Parquet file"),
        (b"PAR1\x00\x00\x00\x01\x00\x00\x00PAR1", "damaged"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", History::open(&[&path]).unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
    let error = format!(
        "{:#}",
        History::open(&[directory.path().join("b")]).unwrap_err()
    );
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn a_history_of_another_version_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let other = Meta {
        schema: "debox.history/2".to_string(),
        ..meta()
    };
    Writer::create(&path, other, limits(10))
        .unwrap()
        .finish()
        .unwrap();
    let error = format!("{:#}", History::open(&[&path]).unwrap_err());
    assert!(error.contains("debox.history/2"), "{error}");
}

/// A killed recorder: the file ends with the last complete group, and the tail has the rows after
/// it.
#[test]
fn the_tail_of_a_killed_recorder_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let calls: Vec<Call> = (0..25)
        .map(|_| call().new_tree(&mut runner).unwrap().current())
        .collect();
    let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
    for call in &calls[..15] {
        writer.append(call).unwrap();
        writer.settle();
        writer.tick().unwrap();
    }
    let old_tail = fs::read(tail_of(&path)).unwrap();
    for call in &calls[15..20] {
        writer.append(call).unwrap();
    }
    // Killed after the group was sealed and before the tail was removed.
    drop(writer);
    fs::write(tail_of(&path), old_tail).unwrap();
    assert_eq!(read(&path), &calls[..20]);
    // And with a group that was being written.
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(&[7; 1000]);
    fs::write(&path, bytes).unwrap();
    let history = History::open(&[&path]).unwrap();
    assert_eq!((history.rows(), history.files[0].cut_off), (20, 1000));
    let repaired = repair(&path).unwrap().unwrap();
    assert_eq!(
        (repaired.rows, repaired.from_tail, repaired.cut_off),
        (20, 0, 1000)
    );
    assert_eq!(read(&path), &calls[..20]);
    let whole = History::open(&[&path]).unwrap();
    assert_eq!(
        (whole.files[0].cut_off, whole.files[0].meta.complete),
        (0, false)
    );
}

#[test]
fn a_tail_becomes_part_of_the_repaired_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let calls: Vec<Call> = (0..15)
        .map(|_| call().new_tree(&mut runner).unwrap().current())
        .collect();
    let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
    for call in &calls {
        writer.append(call).unwrap();
        writer.settle();
        writer.tick().unwrap();
    }
    drop(writer);
    let repaired = repair(&path).unwrap().unwrap();
    assert_eq!(
        (repaired.rows, repaired.from_tail, repaired.cut_off),
        (15, 5, 0)
    );
    assert!(!tail_of(&path).exists());
    assert_eq!(read(&path), calls);
    let mut writer = Writer::create(&path, meta(), limits(10)).unwrap();
    writer.meta_mut().complete = true;
    writer.finish().unwrap();
    assert_eq!(repair(&path).unwrap(), None);
}
