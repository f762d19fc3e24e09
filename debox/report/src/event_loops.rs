// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event loops, and what keeps them from their events: by the rule that the guard and the live view have, too.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use debox_model::frame::texts_of;
use debox_model::loops::EventWait;

use crate::aggregate::{Aggregate, ThreadSums};
use crate::event_loop::{EventLoop, LoopCause};
use crate::loopers::{Kind, Looper};
use crate::names::{Name, Names};

/// Loops, and causes of each, at most.
const LOOPS: usize = 40;
const CAUSES: usize = 5;
/// The innermost frames of a stack, at most.
const FRAMES: usize = 40;

/// The loops, those first that waited for other things than their events for longest.
pub fn loops(sums: &Aggregate, begin: i64, names: &Names) -> Vec<EventLoop> {
    let threads = sums.threads.sums.iter().zip(&sums.loopers);
    let threads: Vec<(&(u32, ThreadSums), &Looper)> = threads
        .filter_map(|(thread, looper)| Some((thread, looper.as_deref()?)))
        .filter(|(_, looper)| looper.may_be_loop())
        .collect();
    // Threads that share an instance take turns: who has no turn waits for the others.
    let mut waiters: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((_, thread), looper) in &threads {
        if let Some(at) = looper.own().at() {
            *waiters.entry((thread.pid, at)).or_default() += 1;
        }
    }
    let mut loops: Vec<EventLoop> = threads
        .iter()
        .filter(|(_, looper)| looper.is_loop())
        .map(|((tid, thread), looper)| {
            let at = looper.own().at();
            let is_shared = at.is_some_and(|at| waiters[&(thread.pid, at)] > 1);
            event_loop(
                (thread.pid, *tid),
                thread,
                looper,
                is_shared,
                begin,
                sums,
                names,
            )
        })
        .collect();
    loops.sort_by_key(|one| (Reverse((one.blocked_ns, one.longest_turn_ns)), one.tid));
    loops.truncate(LOOPS);
    loops
}

fn event_loop(
    (pid, tid): (u32, u32),
    thread: &ThreadSums,
    looper: &Looper,
    is_shared: bool,
    begin: i64,
    sums: &Aggregate,
    names: &Names,
) -> EventLoop {
    let mut causes: Vec<LoopCause> = Vec::new();
    for (kind, waits) in &looper.waits {
        let class = sums.class_of(kind.label, names);
        let call = names.get(kind.call);
        let of_events = EventWait::of(&call, pid == tid, true).filter(|_| class == "idle");
        let takes_turns = is_shared && (class == "idle" || kind.is_free);
        if !is_inside(kind, of_events, looper, takes_turns) {
            continue;
        }
        let maybe = |name| names.text(name).map(|text| text.to_string());
        let cause = LoopCause {
            call: call.to_string(),
            label: names.get(kind.label).to_string(),
            class,
            is_inner_loop: of_events == Some(EventWait::AtInstance),
            count: waits.count,
            blocked_ns: waits.blocked,
            longest_ns: waits.longest,
            caller: maybe(waits.caller),
            stack: innermost(waits.stack, names),
            resource: maybe(waits.resource),
        };
        // An inner loop may get a new instance each time that it runs.
        match causes.iter_mut().find(|known| known.is_like(&cause)) {
            Some(known) => known.add(cause),
            None => causes.push(cause),
        }
    }
    let blocked = causes.iter().map(|cause| cause.blocked_ns);
    let blocked_ns = blocked.fold(0u64, u64::saturating_add);
    causes.sort_by_key(|cause| (Reverse(cause.blocked_ns), cause.call.clone()));
    causes.truncate(CAUSES);
    let turn = looper.longest_turn;
    EventLoop {
        pid,
        tid,
        comm: names.get(thread.comm).to_string(),
        waits: match looper.instances.is_empty() {
            true => looper.polls,
            false => {
                let own = looper.own().at();
                let of_own = looper.instances.iter().find(|(at, _)| Some(*at) == own);
                of_own.map_or(0, |(_, waits)| *waits)
            }
        },
        blocked_ns,
        longest_turn_ns: turn.ns,
        longest_turn_at_ns: match turn.ns {
            0 => 0,
            _ => turn.begin.saturating_sub(begin).max(0) as u64,
        },
        long_turns: looper.long_turns,
        causes,
    }
}

fn innermost(stack: Name, names: &Names) -> Vec<String> {
    let Some(stack) = names.text(stack) else {
        return Vec::new();
    };
    let frames: Vec<&str> = texts_of(&stack).collect();
    let shown = &frames[frames.len().saturating_sub(FRAMES)..];
    shown.iter().map(|frame| frame.to_string()).collect()
}

/// Whether a wait keeps the loop from its events.
fn is_inside(
    kind: &Kind,
    of_events: Option<EventWait>,
    looper: &Looper,
    takes_turns: bool,
) -> bool {
    let at = kind.instance.unwrap_or(u64::MAX);
    match of_events {
        Some(events) if looper.own().take_in(events, at) => false,
        Some(EventWait::AtInstance) => true,
        _ => !takes_turns,
    }
}
