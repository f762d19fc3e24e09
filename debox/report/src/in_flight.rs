//! Calls that had not returned when the recording ended, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::report::{Report, Rest, SlowCall, SlowSleep};
use crate::sentences::capital;
use crate::slow_calls::NOT_KNOWN;
use kit_units::{count, time};

/// Waits of calls in flight are reported from this time on, if they are also long enough for a finding.
const HANGING_NS: u64 = 10_000_000;
const HANGING: usize = 5;

/// Whether a call that had not returned is worth a sentence: it waits for something other than work, or
/// it went on from before the recording to its end.
fn hangs(call: &SlowCall, least: u64, span_ns: u64) -> bool {
    let active = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
    active >= least.max(HANGING_NS) || (call.partial && call.budget.wall_ns >= span_ns / 10 * 9)
}

/// The sleep that the call is still in.
pub fn open_sleep(call: &SlowCall) -> Option<&SlowSleep> {
    call.sleeps.iter().find(|sleep| sleep.in_flight)
}

/// `others`: the number of other threads in the same wait.
fn sentence(call: &SlowCall, others: usize) -> String {
    let thread = if call.pid == call.tid {
        format!("the main thread of {} ({})", call.comm, call.tid)
    } else {
        format!("thread {} ({})", call.tid, call.comm)
    };
    let mut text = format!("{thread} was still in {}", call.call);
    let _ = match call.partial {
        true => write!(
            text,
            " when the recording ended, as it was when it began, {} before",
            time(call.budget.wall_ns)
        ),
        false => write!(
            text,
            " when the recording ended, {} after it had begun",
            time(call.budget.wall_ns)
        ),
    };
    match open_sleep(call) {
        Some(sleep) => {
            let _ = write!(text, ": it was waiting for {}", sleep.label);
            if let Some(resource) = &sleep.resource {
                let _ = write!(text, " ({resource})");
            }
            let _ = write!(text, ", for {}", time(sleep.blocked_ns));
            match sleep.owner.as_deref() {
                None => {}
                Some(NOT_KNOWN) => text.push_str("; who held it is not known"),
                Some(owner) => {
                    let _ = write!(text, ", held by {owner}");
                }
            }
        }
        None => text.push_str(": it was not asleep"),
    }
    if let Some(caller) = &call.caller {
        let _ = write!(text, "; called from {caller}");
    }
    match others {
        0 => {}
        1 => text.push_str(". One more thread was in the same"),
        others => {
            let _ = write!(
                text,
                ". {} more threads were in the same",
                count(others as u64)
            );
        }
    }
    text.push('.');
    capital(text)
}

/// Calls in the same wait.
pub struct Hanging {
    pub text: String,
    /// Their time together, without idle waits.
    pub time_ns: u64,
    /// Whether each of their threads may only wait for work.
    pub may_be_at_rest: bool,
}

/// Calls that would read the same share a sentence.
pub fn sentences(report: &Report, least: u64) -> Vec<Hanging> {
    type Like<'a> = (&'a str, &'a str, Option<(&'a str, Option<&'a str>)>);
    // The first call of each kind, the number of others, their time together, and whether all may be at rest.
    let mut alike: Vec<(Like, &SlowCall, usize, u64, bool)> = Vec::new();
    let span = report.recording.span_ns;
    let deadlocked = report.deadlocks.iter().flat_map(|found| &found.waits);
    let deadlocked: BTreeSet<u32> = deadlocked.map(|wait| wait.tid).collect();
    let threads = report.threads.iter();
    let rests: BTreeMap<(u32, u32), Option<Rest>> = threads
        .map(|thread| ((thread.pid, thread.tid), thread.rest))
        .collect();
    let hanging = report.in_flight.iter();
    let hanging = hanging.filter(|call| !deadlocked.contains(&call.tid));
    for call in hanging.filter(|call| hangs(call, least, span)) {
        let sleep = open_sleep(call).map(|sleep| (&*sleep.label, sleep.resource.as_deref()));
        let like = (&*call.comm, &*call.call, sleep);
        let rest = rests.get(&(call.pid, call.tid)).copied().flatten();
        if rest == Some(Rest::AtRest) {
            continue; // it waits for work
        }
        let may_rest = rest == Some(Rest::CannotTell);
        let active = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
        match alike.iter_mut().find(|(known, ..)| *known == like) {
            Some((_, _, others, all, all_may_rest)) => {
                *others += 1;
                *all = all.saturating_add(active);
                *all_may_rest &= may_rest;
            }
            None => alike.push((like, call, 0, active, may_rest)),
        }
    }
    let told = alike.iter().take(HANGING);
    told.map(|(_, call, others, all, all_may_rest)| Hanging {
        text: sentence(call, *others),
        time_ns: *all,
        may_be_at_rest: *all_may_rest,
    })
    .collect()
}
