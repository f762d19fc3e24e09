//! Each export has all of the history's time, to the nanosecond.

use std::collections::HashMap;

use debox_history::{schema, sleep_fields, Account, Meta};
use debox_model::history::Call;
use debox_model::report::{SampledStack, Samples};
use proptest::prelude::*;

use crate::samples::{self, calls, export_of, exported, options, wild_call};
use crate::{Format, Weight};

fn sum(calls: &[Call], weight: Weight) -> u128 {
    let each = calls.iter().map(|call| match weight {
        Weight::Blocked => call.budget.blocked_ns,
        Weight::Cpu => call.budget.cpu_ns,
        Weight::Runqueue => call.budget.runqueue_ns,
        Weight::Samples => unreachable!("samples are not of calls"),
    });
    each.map(u128::from).sum()
}

/// The stacks of folded lines with their times.
fn folded(bytes: &[u8]) -> HashMap<String, u128> {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut stacks = HashMap::new();
    for line in text.lines() {
        let (stack, time) = line.rsplit_once(' ').unwrap();
        let before = stacks.insert(stack.to_string(), time.parse().unwrap());
        assert_eq!(before, None, "a line for each stack");
    }
    stacks
}

const WEIGHTS: [Weight; 3] = [Weight::Blocked, Weight::Cpu, Weight::Runqueue];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn folded_stacks_have_all_the_time(calls in prop::collection::vec(wild_call(), 0..40)) {
        for weight in WEIGHTS {
            let (bytes, _) = export_of(&calls, &options(Format::Folded, weight)).unwrap();
            let stacks = folded(&bytes);
            prop_assert_eq!(stacks.values().sum::<u128>(), sum(&calls, weight));
        }
    }

    #[test]
    fn a_flame_graph_is_drawn(calls in calls()) {
        let (bytes, _) = export_of(&calls, &options(Format::Folded, Weight::Blocked)).unwrap();
        prop_assume!(!bytes.is_empty());
        let mut svg = Vec::new();
        let mut how = inferno::flamegraph::Options::default();
        inferno::flamegraph::from_reader(&mut how, &bytes[..], &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        prop_assert!(svg.contains("</svg>"));
        prop_assert!(!svg.contains("Ignored"));
    }

    #[test]
    fn lines_of_json_have_every_column(calls in prop::collection::vec(wild_call(), 0..40)) {
        let (bytes, _) = export_of(&calls, &options(Format::Ndjson, Weight::Blocked)).unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        prop_assert_eq!(text.lines().count(), calls.len());
        for (line, call) in text.lines().zip(&calls) {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let names: Vec<&String> = row.as_object().unwrap().keys().collect();
            let mut expected: Vec<String> =
                schema().fields().iter().map(|field| field.name().clone()).collect();
            // From the file's metadata.
            expected.push("process".to_string());
            // serde_json sorts them.
            expected.sort();
            prop_assert_eq!(names, expected.iter().collect::<Vec<_>>());
            prop_assert_eq!(row["blocked_ns"].as_u64(), Some(call.budget.blocked_ns));
            prop_assert_eq!(row["arg2"].as_u64(), Some(call.args[2]));
            prop_assert_eq!(row["ret"].as_i64(), (!call.in_flight).then_some(call.ret));
            let user = call.user.map(|user| user.wall_ns);
            prop_assert_eq!(row["user_ns"].as_u64(), user);
            prop_assert_eq!(row["stack"].as_str(), call.stack.as_deref());
            let time = call.start_ns as i64 + samples::OFFSET;
            prop_assert_eq!(row["time"].as_i64(), Some(time));
            let sleeps = row["sleeps"].as_array().unwrap();
            prop_assert_eq!(sleeps.len(), call.sleeps.len());
            for (found, sleep) in sleeps.iter().zip(&call.sleeps) {
                let found = found.as_object().unwrap();
                prop_assert_eq!(found.len(), sleep_fields().len());
                prop_assert!(sleep_fields().iter().all(|field| found.contains_key(field.name())));
                prop_assert_eq!(found["blocked_ns"].as_u64(), Some(sleep.blocked_ns));
                let begin = sleep.begin_ns - call.start_ns;
                prop_assert_eq!(found["begin_ns"].as_u64(), Some(begin));
            }
        }
    }

    /// Whatever the names and callers are.
    #[test]
    fn lines_are_of_one_call_each(calls in prop::collection::vec(wild_call(), 0..40)) {
        let (bytes, _) = export_of(&calls, &options(Format::Text, Weight::Blocked)).unwrap();
        prop_assert_eq!(std::str::from_utf8(&bytes).unwrap().lines().count(), calls.len());
        let (bytes, _) = export_of(&calls, &options(Format::Csv, Weight::Blocked)).unwrap();
        prop_assert_eq!(std::str::from_utf8(&bytes).unwrap().lines().count(), calls.len() + 1);
    }

    /// Consecutive spans have all calls, each once.
    #[test]
    fn spans_divide_a_history(calls in calls(), at in 0u64..8_000_000) {
        let directory = tempfile::tempdir().unwrap();
        let history = samples::write(&directory.path().join("a.parquet"), samples::meta(), &calls);
        let mut options = options(Format::Folded, Weight::Blocked);
        options.to_ns = Some(at);
        let (before, first) = exported(&history, &options).unwrap();
        (options.from_ns, options.to_ns) = (Some(at), None);
        let (after, second) = exported(&history, &options).unwrap();
        prop_assert_eq!(first.exported + second.exported, calls.len() as u64);
        let early = calls.iter().filter(|call| call.start_ns < 1000 + at).count();
        prop_assert_eq!(first.exported, early as u64);
        let total = [before, after].iter().flat_map(|bytes| folded(bytes).into_values()).sum::<u128>();
        prop_assert_eq!(total, sum(&calls, Weight::Blocked));
    }

    #[test]
    fn only_what_the_filter_keeps_is_exported(calls in calls()) {
        let mut options = options(Format::Ndjson, Weight::Blocked);
        options.filter = Some("blocked > 50us".parse().unwrap());
        let (_, summary) = export_of(&calls, &options).unwrap();
        let kept = calls.iter().filter(|call| call.budget.blocked_ns > 50_000).count();
        prop_assert_eq!((summary.rows, summary.exported), (calls.len() as u64, kept as u64));
    }

    /// Damaged files cause an error or other values, never a crash.
    #[test]
    fn damage_is_an_error(calls in calls(), at in 0.0..1.0, to: u8) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        samples::write(&path, samples::meta(), &calls);
        let mut bytes = std::fs::read(&path).unwrap();
        let place = (bytes.len() as f64 * at) as usize;
        bytes[place] = to;
        std::fs::write(&path, bytes).unwrap();
        let Ok(history) = debox_history::History::open(&[&path]) else { return Ok(()) };
        let formats = [Format::Perfetto, Format::Pprof, Format::Folded, Format::Ndjson, Format::Text, Format::Csv];
        for format in formats {
            if let Err(error) = exported(&history, &options(format, Weight::Blocked)) {
                let text = format!("{error:#}");
                prop_assert!(!text.is_empty());
            }
        }
    }
}

#[test]
fn hosts_are_named_where_there_are_several() {
    let directory = tempfile::tempdir().unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let call = proptest::strategy::ValueTree::current(&wild_call().new_tree(&mut runner).unwrap());
    let mut there = samples::meta();
    there.host = "there".to_string();
    samples::write(
        &directory.path().join("a.parquet"),
        samples::meta(),
        std::slice::from_ref(&call),
    );
    samples::write(&directory.path().join("b.parquet"), there, &[call]);
    let history = debox_history::History::open(&[directory.path()]).unwrap();
    let (bytes, _) = exported(&history, &options(Format::Ndjson, Weight::Blocked)).unwrap();
    let lines = String::from_utf8(bytes).unwrap();
    let hosts: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|row| row["host"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(hosts, ["here", "there"]);
}

#[test]
fn samples_are_of_a_whole_recording_only() {
    let stack = |syscall: &str, frames: &[&str], samples| SampledStack {
        comm: "program".to_string(),
        syscall: syscall.to_string(),
        frames: frames.iter().map(|frame| (*frame).into()).collect(),
        samples,
    };
    let sampled = Samples {
        total: 13,
        stacks: vec![
            stack("(user)", &["fill (m.c:3)", "main (m.c:9)"], 7),
            stack("write", &["main (m.c:9)"], 4),
        ],
        in_further_stacks: 2,
        ..Samples::default()
    };
    let meta = Meta {
        account: Some(Account {
            samples: Some(sampled),
            ..Account::default()
        }),
        ..samples::meta()
    };
    let directory = tempfile::tempdir().unwrap();
    let history = samples::write(&directory.path().join("a.parquet"), meta, &[]);
    let whole = options(Format::Folded, Weight::Samples);
    let (bytes, _) = exported(&history, &whole).unwrap();
    let expected =
        "(stacks that were not kept) 2\nmain (m.c:9);fill (m.c:3) 7\nmain (m.c:9);write 4\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    let part = crate::Options {
        from_ns: Some(5),
        ..whole.clone()
    };
    assert!(exported(&history, &part).is_err());
    let without = samples::write(&directory.path().join("b.parquet"), samples::meta(), &[]);
    assert!(exported(&without, &whole).is_err());
}
