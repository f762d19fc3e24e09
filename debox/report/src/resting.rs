// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells waits for work apart from the other waits, wherever the report has them: in its calls and threads, over time
//! and in the flame graph.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::aggregate::{Aggregate, CallSums, LabelSums};
use crate::flame;
use crate::names::{Name, Names};
use crate::parts::USER;
use crate::report::{Report, Timeline, TimelineCall, TimelinePart};
use crate::rest::{self, Rests};
use crate::timeline;

/// Calls that have a timeline of their own, at most.
const CALLS_OVER_TIME: usize = 8;
/// All calls without a timeline of their own.
const OTHER_CALLS: &str = "(other calls)";

/// Threads with waits that the findings leave out, and these waits by call.
pub struct Resting {
    threads: FxHashSet<(u32, u32)>,
    by_call: FxHashMap<Name, LabelSums>,
}

impl Resting {
    /// From the threads that were judged.
    pub fn of(rests: &Rests, sums: &Aggregate) -> Resting {
        let threads: FxHashSet<(u32, u32)> = rests.aside().collect();
        let mut by_call: FxHashMap<Name, LabelSums> = FxHashMap::default();
        for (key, stack) in &sums.stacks.sums {
            if key.may_rest.is_some_and(|thread| threads.contains(&thread)) {
                let sum = by_call.entry(key.call).or_default();
                sum.sleeps += stack.sleeps;
                sum.blocked = sum.blocked.saturating_add(stack.blocked);
            }
        }
        Resting { threads, by_call }
    }

    /// All of them: they have the label `futex`.
    pub fn futexes(&self) -> LabelSums {
        let mut all = LabelSums::default();
        for one in self.by_call.values() {
            all.sleeps += one.sleeps;
            all.blocked = all.blocked.saturating_add(one.blocked);
        }
        all
    }

    pub fn add_to(
        &self,
        report: &mut Report,
        sums: &Aggregate,
        calls: &[(String, Name, &CallSums)],
        names: &Names,
    ) {
        for call in report.calls.iter_mut().chain(&mut report.between_calls) {
            let found = calls.iter().find(|(name, ..)| *name == call.name);
            let resting = found.and_then(|(_, name, _)| self.by_call.get(name));
            call.resting_ns = resting.map_or(0, |resting| resting.blocked);
        }
        let ns = |line: &timeline::Timeline<1>| {
            let bins = line.bins().iter();
            bins.fold(0u64, |sum, [ns]| sum.saturating_add(*ns))
        };
        let lines = || {
            let lines = sums.rests.iter();
            lines.filter(|(thread, _)| self.threads.contains(*thread))
        };
        for thread in &mut report.threads {
            let mut lines = lines();
            let line = lines.find(|(of, _)| **of == (thread.pid, thread.tid));
            thread.resting_ns = line.map_or(0, |(_, line)| ns(line));
        }
        let lines: Vec<&timeline::Timeline<1>> = lines().map(|(_, line)| line).collect();
        report.timeline = over_time(&sums.timeline(), calls, &lines);
        let rests = |thread| self.threads.contains(&thread);
        report.flame = flame::flame(&sums.stacks, names, &rests);
    }
}

/// The same bins for all calls together and for each of the most expensive calls. `resting`: when threads waited
/// for work, which then counts as idle instead of lock.
fn over_time(
    all: &timeline::Timeline,
    calls: &[(String, Name, &CallSums)],
    resting: &[&timeline::Timeline<1>],
) -> Timeline {
    // Bins before the first record are empty.
    let skip = all
        .bins()
        .iter()
        .position(|bin| bin.iter().any(|sum| *sum > 0))
        .unwrap_or(0);
    let length = all.bins().len();
    let before = (skip as u64).saturating_mul(all.bin_ns());
    let parts = |found: &timeline::Timeline, may_rest: bool| -> Vec<TimelinePart> {
        let mut on_the_same_bins = all.like();
        on_the_same_bins.merge(found);
        for line in resting.iter().filter(|_| may_rest) {
            on_the_same_bins.move_part(line, timeline::LOCK, timeline::IDLE);
        }
        let bins = on_the_same_bins.bins();
        let parts = timeline::PARTS.iter().enumerate();
        parts
            .map(|(part, name)| TimelinePart {
                name,
                ns: (skip..length)
                    .map(|bin| bins.get(bin).map_or(0, |bin| bin[part]))
                    .collect(),
            })
            .filter(|part| part.ns.iter().any(|sum| *sum > 0))
            .collect()
    };
    // The time between calls is not a call, and does not take a call's place.
    let (between, calls): (Vec<_>, Vec<_>) = calls.iter().partition(|(name, ..)| name == USER);
    let by_call = calls.iter().take(CALLS_OVER_TIME).chain(&between);
    let mut by_call: Vec<TimelineCall> = by_call
        .map(|(call, _, sums)| TimelineCall {
            call: call.clone(),
            parts: parts(&sums.timeline, call == rest::FUTEX),
        })
        .filter(|call| !call.parts.is_empty())
        .collect();
    let mut others = all.like();
    let mut left = calls.iter().skip(CALLS_OVER_TIME);
    let is_futex_among_others = left.any(|(name, ..)| name == rest::FUTEX);
    for (_, _, sums) in calls.iter().skip(CALLS_OVER_TIME) {
        others.merge(&sums.timeline);
    }
    if !others.bins().is_empty() {
        by_call.push(TimelineCall {
            call: OTHER_CALLS.to_string(),
            parts: parts(&others, is_futex_among_others),
        });
    }
    Timeline {
        begin_ns: all
            .origin()
            .saturating_add(before.min(i64::MAX as u64) as i64),
        bin_ns: all.bin_ns(),
        parts: parts(all, true),
        by_call,
    }
}
