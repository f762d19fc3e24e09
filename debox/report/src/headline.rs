//! The first lines: what matters most, and the time by cause.
//!
//! A recording's headline comes from its recorder, which knows how long threads computed between their
//! calls. For a recording without an end, and for several recordings together, the headline is made from
//! the records, and covers only the time in calls and off the CPU between them.

use std::collections::BTreeSet;

use debox_model::report::headline_words::{percent, shares, what_matters, MOST};
use debox_model::report::{is_server_call, Account, CallTime, Headline, Share, Totals};
use kit_units::time;

use crate::aggregate::LabelSums;
use crate::event_loop::EventLoop;
use crate::report::{Budget, Call, Cell, Matrix, MatrixLabel, Report, Wait};
use crate::rest::FUTEX;

/// Causes also contain waits of other threads, so a loop comes first from this part of the largest cause on.
const MOST_OF_CAUSE: f64 = 0.9;

/// The first lines of a report. `is_of_run`: whether time that threads computed between their calls is
/// included.
pub fn sentences(headline: &Headline, is_of_run: bool) -> Vec<String> {
    let mut lines: Vec<String> = what_matters(headline).into_iter().collect();
    lines.extend(shares(headline));
    if !is_of_run {
        for line in lines.iter_mut().take(1) {
            *line = format!("in its calls {line}");
        }
    }
    lines
}

/// The headline without waits whose class is idle, and without those that the findings leave out: `resting`, all of
/// them on futexes.
pub fn active(report: &Report, resting: &LabelSums) -> Option<Headline> {
    let headline = report.headline.as_ref()?;
    let is_idle = |share: &Share| share.class.as_deref() == Some("idle");
    let mut shares = headline.shares.clone();
    shares.retain(|share| !is_idle(share));
    let waits = || report.waits.iter().filter(|wait| wait.label == FUTEX);
    let mut labels = report.matrix.labels.iter();
    let all = labels.find(|label| label.label == FUTEX);
    let left = all.map_or(0, |all| all.blocked_ns.saturating_sub(resting.blocked));
    let is_shortened =
        |share: &&mut Share| share.cause == FUTEX && share.ns > left && resting.blocked > 0;
    if let Some(share) = shares.iter_mut().find(is_shortened) {
        let others = waits().filter(|wait| !wait.is_rest);
        let longest = others.max_by_key(|wait| wait.blocked_ns);
        *share = Share {
            ns: left,
            count: all.map(|all| all.sleeps.saturating_sub(resting.sleeps)),
            max_ns: longest.map(|wait| wait.longest_ns),
            resource: None,
            owner: longest.and_then(|wait| wait.owner_comm.clone()),
            caller: longest.and_then(|wait| Some(wait.caller.as_deref()?.into())),
            ..share.clone()
        };
    }
    if !shares.iter().any(|share| share.cause == FUTEX) {
        shares.extend(hidden(waits()));
    }
    shares.retain(|share| share.ns > 0);
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    let of_ns = shares
        .iter()
        .fold(0u64, |sum, share| sum.saturating_add(share.ns));
    let all = headline.of_ns.saturating_add(headline.idle_ns);
    // A call is named if it has most of the time, and nothing of it was left out.
    let is_left = |cause: &str| {
        shares
            .iter()
            .any(|share| share.cause == cause && cause != FUTEX)
    };
    let in_call = headline.in_call.clone().filter(|call| {
        percent(call.ns, of_ns) >= MOST && call.shares.iter().all(|part| is_left(&part.cause))
    });
    (!shares.is_empty()).then(|| Headline {
        of_ns,
        idle_ns: all.saturating_sub(of_ns),
        is_served: false,
        shares,
        in_call,
        short_lived: headline.short_lived.clone(),
    })
}

/// Futex waits for locks and for what a request needs, where the recorder took those of all threads together for waits
/// for work.
fn hidden<'a>(waits: impl Iterator<Item = &'a Wait>) -> Option<Share> {
    let is_for_work = |wait: &&Wait| {
        wait.is_rest || !(wait.is_lock || wait.is_at_work || wait.owner_comm.is_some())
    };
    let mut waits: Vec<&Wait> = waits.filter(|wait| !is_for_work(wait)).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.blocked_ns));
    let longest = waits.first()?;
    let sum = |of: fn(&Wait) -> u64| {
        let each = waits.iter().map(|wait| of(wait));
        each.fold(0u64, u64::saturating_add)
    };
    let blocked_ns = sum(|wait| wait.blocked_ns);
    let most = waits.iter().filter(|wait| wait.caller == longest.caller);
    let of_caller = most.fold(0u64, |ns, wait| ns.saturating_add(wait.blocked_ns));
    let is_most = percent(of_caller, blocked_ns) >= MOST;
    Some(Share {
        cause: FUTEX.to_string(),
        ns: blocked_ns,
        class: Some(longest.class.clone()),
        call: Some(longest.call.clone()),
        count: Some(sum(|wait| wait.count)),
        max_ns: waits.iter().map(|wait| wait.longest_ns).max(),
        owner: longest.owner_comm.clone().filter(|_| is_most),
        caller: longest
            .caller
            .as_deref()
            .filter(|_| is_most)
            .map(Into::into),
        is_for_lock: true,
        ..Share::default()
    })
}

/// Of the event loop that was blocked for longest, if that matters as much as the largest cause: by what.
pub fn blocked_loop(loops: &[EventLoop], active: Option<&Headline>) -> Option<String> {
    let most = loops.first().filter(|most| most.blocked_ns > 0)?;
    let cause = most.causes.first()?;
    let shares = active.iter().flat_map(|active| &active.shares);
    let largest = shares.map(|share| share.ns).max().unwrap_or(0);
    (most.blocked_ns as f64 >= largest as f64 * MOST_OF_CAUSE).then(|| {
        format!(
            "the event loop of {} was blocked for {}, mostly by {} in {}",
            most.comm,
            time(most.blocked_ns),
            cause.what(),
            cause.call
        )
    })
}

/// Makes the headline from the records: the time in calls, and off the CPU between them.
pub fn of_records(report: &Report) -> Option<Headline> {
    let all = || report.calls.iter().chain(&report.between_calls);
    let sum =
        |of: fn(&Budget) -> u64| all().fold(0u64, |sum, call| sum.saturating_add(of(&call.budget)));
    let totals = Totals {
        kernel_cpu_ns: report.totals.cpu_ns,
        blocked_ns: sum(|budget| budget.blocked_ns),
        runqueue_ns: sum(|budget| budget.runqueue_ns),
        preempted_ns: sum(|budget| budget.preempted_ns),
        irq_ns: report.totals.irq_ns,
        ..Totals::default()
    };
    let time = |call: &Call| CallTime {
        name: call.name.clone(),
        cpu_ns: call.budget.cpu_ns,
    };
    let processes: BTreeSet<u32> = report.threads.iter().map(|thread| thread.pid).collect();
    Headline::of_account(Account {
        duration_ns: report.recording.span_ns,
        threads: report.threads.len(),
        processes: processes.len(),
        totals,
        sleeps: sleeps(&report.matrix, &report.waits),
        cpu_waits: report
            .cpu_waits
            .as_ref()
            .map_or_else(Vec::new, |waits| waits.rows(&report.threads)),
        calls: report.calls.iter().map(time).collect(),
        short_lived: None,
        has_server_calls: report.calls.iter().any(|call| is_server_call(&call.name)),
        // Samples come only with the recorder's headline.
        computing: None,
        in_kernel: None,
    })
}

fn sleeps(matrix: &Matrix, waits: &[Wait]) -> Vec<Share> {
    let cells = matrix
        .calls
        .iter()
        .zip(&matrix.cells)
        .flat_map(|(call, row)| {
            let labels = matrix.labels.iter().zip(row);
            labels.map(move |(label, cell)| (call, label, cell))
        });
    let share = |(call, label, cell): (&String, &MatrixLabel, &Cell)| {
        let is_here = |wait: &&Wait| wait.call == *call && wait.label == label.label;
        let longest = waits
            .iter()
            .filter(is_here)
            .max_by_key(|wait| wait.blocked_ns);
        let max_ns = waits
            .iter()
            .filter(is_here)
            .map(|wait| wait.longest_ns)
            .max();
        Share {
            cause: label.label.clone(),
            ns: cell.blocked_ns,
            class: Some(label.class.clone()),
            call: Some(call.clone()),
            count: Some(cell.sleeps),
            max_ns,
            owner: longest.and_then(|wait| wait.owner_comm.clone()),
            caller: longest.and_then(|wait| Some(wait.caller.as_deref()?.into())),
            is_for_lock: longest.is_some_and(|wait| wait.is_lock || wait.owner_certainty.is_some()),
            ..Share::default()
        }
    };
    cells
        .filter(|(.., cell)| cell.blocked_ns > 0)
        .map(share)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::LoopCause;

    #[test]
    fn a_loop_comes_first_if_it_was_blocked_for_about_as_long_as_the_largest_cause() {
        let cause = LoopCause {
            call: "pread64".to_string(),
            label: "page read".to_string(),
            class: "disk".to_string(),
            is_inner_loop: false,
            count: 3,
            blocked_ns: 95,
            longest_ns: 50,
            caller: None,
            stack: Vec::new(),
            resource: None,
        };
        let blocked = EventLoop {
            pid: 1,
            tid: 1,
            comm: "server".to_string(),
            waits: 10,
            blocked_ns: 95,
            longest_turn_ns: 0,
            longest_turn_at_ns: 0,
            long_turns: 0,
            causes: vec![cause],
        };
        let headline = |ns| Headline {
            shares: vec![Share {
                cause: "futex".to_string(),
                ns,
                ..Share::default()
            }],
            ..Headline::default()
        };
        let [longer, about_as_long] = [200, 100].map(headline);
        let loops = [blocked];
        assert_eq!(blocked_loop(&loops, Some(&longer)), None);
        let said = "the event loop of server was blocked for 95 ns, mostly by page read in pread64";
        let found = blocked_loop(&loops, Some(&about_as_long));
        assert_eq!(found.as_deref(), Some(said));
        assert_eq!(blocked_loop(&loops, None), found);
        assert_eq!(blocked_loop(&[], Some(&longer)), None);
    }
}
