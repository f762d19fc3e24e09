//! Reads a trace back through its messages, to check nesting, balance and where arrows lead.

use std::collections::HashMap;

use debox_model::history::Call;
use proptest::prelude::*;
use prost::Message;

use super::messages::{self, TraceEventKind, CLEARED};
use crate::samples::{self, calls, export_of, options, wild_call};
use crate::{Format, Weight};

#[derive(Debug, Default, PartialEq)]
struct Read {
    /// By category, in the order of the file: name, begin, end.
    slices: HashMap<String, Vec<(String, u64, u64)>>,
    /// Sum of the argument `blocked_ns` of calls.
    blocked_ns: u128,
    arrows: u64,
}

fn read(bytes: &[u8]) -> Read {
    let trace = messages::Trace::decode(bytes).unwrap();
    let mut read = Read::default();
    let (mut names, mut categories) = (HashMap::new(), HashMap::new());
    let (mut arguments, mut texts) = (HashMap::new(), HashMap::new());
    let mut tracks: HashMap<u64, Vec<(String, String, u64)>> = HashMap::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut arrows: HashMap<u64, u64> = HashMap::new();
    for packet in trace.packet {
        if let Some(track) = &packet.track_descriptor {
            let is_new = tracks.insert(track.uuid.unwrap(), Vec::new()).is_none();
            assert!(is_new, "described twice: {track:?}");
            if let Some(parent) = track.parent_uuid {
                assert!(tracks.contains_key(&parent));
            }
        }
        if packet.sequence_flags.unwrap_or(0) & CLEARED != 0 {
            names.clear();
            categories.clear();
            arguments.clear();
            texts.clear();
            assert!(packet.trace_packet_defaults.is_some());
        }
        if let Some(new) = packet.interned_data {
            for (table, list) in [
                (&mut names, new.event_names),
                (&mut categories, new.event_categories),
                (&mut arguments, new.debug_annotation_names),
                (&mut texts, new.debug_annotation_string_values),
            ] {
                for entry in list {
                    let before = table.insert(entry.iid.unwrap(), entry.name.unwrap());
                    assert_eq!(before, None);
                }
            }
        }
        let Some(event) = packet.track_event else {
            continue;
        };
        let (track, at) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
        let stack = tracks.get_mut(&track).expect("a track that was described");
        let named: HashMap<&str, &messages::DebugAnnotation> = event
            .debug_annotations
            .iter()
            .map(|argument| (&*arguments[&argument.name_iid.unwrap()], argument))
            .collect();
        for argument in named.values() {
            let text = argument.string_value_iid;
            assert!(text.is_none_or(|text| texts.contains_key(&text)));
        }
        let kind = event.r#type.unwrap();
        if kind == TraceEventKind::Instant as i32 {
            for flow in event.flow_ids {
                assert_eq!(arrows.insert(flow, at), None);
            }
            continue;
        }
        let last = last.entry(track).or_default();
        assert!(at >= *last, "back in time");
        *last = at;
        if kind == TraceEventKind::End as i32 {
            let (category, name, begin) = stack.pop().expect("something to end");
            let slices = read.slices.entry(category).or_default();
            slices.push((name, begin, at));
            continue;
        }
        let category: String = categories[&event.category_iids[0]].clone();
        match &*category {
            "syscall" | "user" => {
                assert_eq!(stack.len(), 0, "calls are not in each other");
                let blocked = named.get("blocked_ns").and_then(|it| it.uint_value);
                read.blocked_ns += u128::from(blocked.unwrap_or(0));
            }
            _ => assert_eq!(stack.len(), 1, "a part of a call"),
        }
        for flow in event.terminating_flow_ids {
            assert_eq!(arrows.remove(&flow), Some(at), "an arrow of no length");
            read.arrows += 1;
        }
        stack.push((category, names[&event.name_iid.unwrap()].clone(), at));
    }
    assert!(tracks.values().all(|stack| stack.is_empty()), "all ended");
    assert!(arrows.is_empty(), "all arrows lead somewhere");
    read
}

fn blocked(calls: &[Call]) -> u128 {
    let each = calls.iter().map(|call| call.budget.blocked_ns);
    each.map(u128::from).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn calls_and_sleeps_are_where_they_were(calls in calls()) {
        let options = options(Format::Perfetto, Weight::Blocked);
        let (bytes, summary) = export_of(&calls, &options).unwrap();
        prop_assert_eq!((summary.exported, summary.moved), (calls.len() as u64, 0));
        let mut read = read(&bytes);
        prop_assert_eq!(read.blocked_ns, blocked(&calls));
        let mut expected: HashMap<String, Vec<(String, u64, u64)>> = HashMap::new();
        let tids: Vec<u32> = calls.iter().map(|call| call.tid).collect();
        let mut arrows = 0;
        for call in &calls {
            for sleep in &call.sleeps {
                let woken = sleep.begin_ns + sleep.blocked_ns;
                let slices = expected.entry("sleep".into()).or_default();
                slices.push((sleep.label.to_string(), sleep.begin_ns, woken));
                let is_arrow = &*sleep.waker_kind == "task"
                    && sleep.waker_tid.is_some_and(|tid| tids.contains(&tid) && tid != call.tid);
                arrows += u64::from(is_arrow);
            }
            let category = if call.number < 0 { "user" } else { "syscall" };
            let slices = expected.entry(category.into()).or_default();
            slices.push((call.name.to_string(), call.start_ns, call.start_ns + call.wall_ns));
        }
        read.slices.remove("runqueue");
        prop_assert_eq!(read.slices, expected);
        // A thread may have had the id of a thread in another process.
        prop_assert!(read.arrows >= arrows);
    }

    /// Nonsensical times still make a well-formed trace.
    #[test]
    fn nothing_makes_a_broken_trace(calls in prop::collection::vec(wild_call(), 0..40)) {
        let options = options(Format::Perfetto, Weight::Blocked);
        let (bytes, _) = export_of(&calls, &options).unwrap();
        prop_assert_eq!(read(&bytes).blocked_ns, blocked(&calls));
    }
}

#[test]
fn hosts_are_not_mixed() {
    let directory = tempfile::tempdir().unwrap();
    let mut there = samples::meta();
    there.host = "there".to_string();
    samples::write(&directory.path().join("a.parquet"), samples::meta(), &[]);
    samples::write(&directory.path().join("b.parquet"), there, &[]);
    let history = debox_history::History::open(&[directory.path()]).unwrap();
    let options = options(Format::Perfetto, Weight::Blocked);
    let error = samples::exported(&history, &options).unwrap_err();
    assert!(error.to_string().contains("each host by itself"), "{error}");
}
