//! The longest calls, and the calls in flight at the end, one by one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anyhow::Result;
use debox_history::History;

use crate::aggregate::CallSums;
use crate::names::Name;
use crate::parts::{budget, Parts, Place, USER};
use crate::report::{SlowCall, SlowSleep};

/// Calls that are listed, at most.
const SLOWEST: usize = 40;
const SLEEPS_OF_SLOW: usize = 8;
const STACK_FRAMES: usize = 40;

/// The waker of a sleep that had not ended.
pub const NOT_ENDED: &str = "none";

/// What ended a wait, in words.
pub fn waker_words(kind: &str, tid: Option<u32>, comm: Option<&str>) -> String {
    match (kind, comm, tid) {
        // A task's name may equal a kind of waker: `timeout`, `unknown`.
        ("task", Some(comm), Some(tid)) => format!("task {comm} ({tid})"),
        ("task", Some(comm), None) => format!("task {comm}"),
        ("task", None, _) => "a task".to_string(),
        ("hardirq", ..) => "a hardware interrupt".to_string(),
        ("softirq", ..) => "a soft interrupt".to_string(),
        (NOT_ENDED, ..) => "nothing: it had not ended".to_string(),
        _ => "unknown".to_string(),
    }
}

pub fn slowest(
    history: &History,
    calls: &[(String, Name, &CallSums)],
    begin: i64,
    has_irq: bool,
) -> Result<Vec<SlowCall>> {
    let mut places: Vec<Place> = calls
        .iter()
        .filter(|(name, ..)| name != USER)
        .flat_map(|(_, _, sums)| sums.slowest.iter().copied())
        .collect();
    places.sort_by_key(|place| (Reverse(place.score), place.group, place.row));
    places.truncate(SLOWEST);
    at_places(history, &places, begin, has_irq)
}

/// The calls at these places, longest without idle waits first.
pub fn at_places(
    history: &History,
    places: &[Place],
    begin: i64,
    has_irq: bool,
) -> Result<Vec<SlowCall>> {
    let mut by_group: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for place in places {
        by_group
            .entry(place.group)
            .or_default()
            .push(place.row as usize);
    }
    let groups = history.groups();
    let mut found = Vec::new();
    for (group, rows) in by_group {
        let Some(group) = groups.get(group as usize) else {
            continue;
        };
        let offset = group.file.meta.realtime_offset_ns;
        for call in group.calls_at(&rows)? {
            found.push(slow_call(&call, begin.saturating_sub(offset), has_irq));
        }
    }
    let score = |call: &SlowCall| call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
    found.sort_by_key(|call| (Reverse(score(call)), call.at_ns, call.tid));
    Ok(found)
}

/// `begin`: when the recording began, by the clock of the record.
fn slow_call(call: &debox_model::history::Call, begin: i64, has_irq: bool) -> SlowCall {
    let text =
        |text: &Option<debox_model::history::Text>| text.as_ref().map(|text| text.to_string());
    let mut sleeps: Vec<_> = call.sleeps.iter().collect();
    sleeps.sort_by_key(|sleep| (Reverse(sleep.blocked_ns), sleep.begin_ns));
    let idle = sleeps
        .iter()
        .filter(|sleep| &*sleep.class == "idle")
        .fold(0u64, |sum, sleep| sum.saturating_add(sleep.blocked_ns));
    let left_out = sleeps.len().saturating_sub(SLEEPS_OF_SLOW) as u64;
    let shown = sleeps.iter().take(SLEEPS_OF_SLOW).map(|sleep| SlowSleep {
        begin_ns: sleep.begin_ns.saturating_sub(call.start_ns),
        blocked_ns: sleep.blocked_ns,
        runqueue_ns: sleep.runqueue_ns,
        label: sleep.label.to_string(),
        class: sleep.class.to_string(),
        site: sleep.site.to_string(),
        resource: text(&sleep.resource),
        waker: waker_words(
            &sleep.waker_kind,
            sleep.waker_tid,
            sleep.waker_comm.as_deref(),
        ),
        owner: owner_words(sleep),
        in_flight: &*sleep.waker_kind == NOT_ENDED,
    });
    let stack = call.stack.as_deref().unwrap_or("");
    let frames: Vec<&str> = stack.split(';').filter(|frame| !frame.is_empty()).collect();
    let parts = Parts {
        wall: call.wall_ns,
        cpu: call.budget.cpu_ns,
        blocked: call.budget.blocked_ns,
        runqueue: call.budget.runqueue_ns,
        preempted: call.budget.preempted_ns,
        irq: call.budget.irq_ns.unwrap_or(0),
    };
    SlowCall {
        at_ns: (call.start_ns.min(i64::MAX as u64) as i64)
            .saturating_sub(begin)
            .max(0) as u64,
        pid: call.pid,
        tid: call.tid,
        comm: call.comm.to_string(),
        call: call.name.to_string(),
        in_flight: call.in_flight,
        ret: (!call.in_flight).then_some(call.ret),
        budget: budget(&parts, idle, has_irq),
        caller: text(&call.caller),
        stack: frames[frames.len().saturating_sub(STACK_FRAMES)..]
            .iter()
            .map(|frame| frame.to_string())
            .collect(),
        partial: call.partial,
        sleeps: shown.collect(),
        sleeps_left_out: left_out.saturating_add(u64::from(call.sleeps_left_out)),
    }
}

/// The certainty of an owner if it is unknown whether there is one.
pub const NOT_KNOWN: &str = "not known";

fn owner_words(sleep: &debox_model::history::Sleep) -> Option<String> {
    let certainty = sleep.owner_certainty.as_deref()?;
    let Some(comm) = sleep.owner_comm.as_deref() else {
        return Some(if certainty == "none" {
            NOT_KNOWN.into()
        } else {
            certainty.into()
        });
    };
    let mut words = comm.to_string();
    if let Some(tid) = sleep.owner_tid {
        words.push_str(&format!(" ({tid})"));
    }
    if certainty != "exact" {
        words.push_str(&format!(", {certainty}"));
    }
    if let Some(doing) = sleep.owner_doing.as_deref() {
        words.push_str(&format!(": {doing}"));
    }
    Some(words)
}
