//! The first lines: what matters most, and the time by cause.
//!
//! A recording's headline comes from its recorder, which knows how long threads computed between their
//! calls. For a recording without an end, and for several recordings together, the headline is made from
//! the records, and covers only the time in calls and off the CPU between them.

use std::collections::BTreeSet;

use debox_model::report::{
    interval, is_server_call, Account, CallTime, Headline, InCall, SampledPlace, Share, Totals,
};

use crate::aggregate::LabelSums;
use crate::report::{Budget, Call, Cell, Matrix, MatrixLabel, Report, Wait};
use crate::rest::FUTEX;
use kit_units as units;

/// From this percentage on, a share is most of the time.
const MOST: f64 = 50.0;
/// If the longest share is below this percentage, the time is said to have no single cause.
const ONE_CAUSE: f64 = 100.0 / 3.0;
/// Causes with a smaller share (percent) are not named, and no more than `SHARES` causes.
const LEAST: f64 = 1.0;
const SHARES: usize = 6;
/// Causes that are named for a call, at most.
const PARTS: usize = 4;

fn percent(ns: u64, of_ns: u64) -> f64 {
    ns as f64 * 100.0 / of_ns.max(1) as f64
}

/// A cause's name for users. For `asleep`, the reason for the sleep is unknown.
fn name(cause: &str) -> &str {
    match cause {
        "asleep" => "asleep, reason unknown",
        "user CPU" => "computing in the program",
        "kernel CPU" => "computing in the kernel",
        "outside" => "on the way to calls and back",
        "CPU quota" => "throttled by a CPU quota",
        other => other,
    }
}

/// The longest share, or if no share is most of the time, the call with most of it.
pub fn what_matters(headline: &Headline) -> Option<String> {
    let mut text = match &headline.in_call {
        Some(call) => in_call(call, headline.of_ns),
        None => longest(headline)?,
    };
    if let Some(short) = &headline.short_lived {
        let (count, mean) = (units::count(short.processes), units::time(short.mean_ns));
        text.push_str(&format!("; {count} processes lived {mean} on average"));
    }
    Some(text)
}

/// `mostly in fsync: 93 % (1.12 s): 32 % computing in the kernel, 31 % block flush, 30 % journal commit`
fn in_call(call: &InCall, of_ns: u64) -> String {
    let part = percent(call.ns, of_ns);
    let mut text = format!(
        "mostly in {}: {part:.0} % ({})",
        call.call,
        units::time(call.ns)
    );
    let shares = call
        .shares
        .iter()
        .map(|share| (name(&share.cause), percent(share.ns, of_ns)));
    let told = shares.take(PARTS).take_while(|(_, part)| *part >= LEAST);
    let told: Vec<String> = told
        .map(|(name, part)| format!("{part:.0} % {name}"))
        .collect();
    text.push_str(&format!(": {}", told.join(", ")));
    text
}

/// `mostly timer in clock_nanosleep: 97 % (1.93 s in 38 sleeps, longest 100 ms), called from retry+0x12`
fn longest(headline: &Headline) -> Option<String> {
    let share = headline.shares.first()?;
    let part = percent(share.ns, headline.of_ns);
    let mut text = match (part >= MOST, headline.is_served) {
        (true, true) => "mostly waiting for requests, ".to_string(),
        (true, false) => "mostly ".to_string(),
        (false, _) if part < ONE_CAUSE => "no one cause; the longest part ".to_string(),
        (false, _) => "more than anything else ".to_string(),
    };
    text.push_str(name(&share.cause));
    let is_sleep = share.count.is_some();
    match share.call.as_deref() {
        Some("(user)") => text.push_str(" between calls"),
        Some(call) if is_sleep => text.push_str(&format!(" in {call}")),
        _ => {}
    }
    text.push_str(&format!(": {part:.0} % ({}", units::time(share.ns)));
    if let (Some(count), Some(max_ns)) = (share.count, share.max_ns) {
        let times = match (share.cause.as_str(), count) {
            ("CPU quota", 1) => "wait",
            ("CPU quota", _) => "waits",
            (_, 1) => "sleep",
            (_, _) => "sleeps",
        };
        text.push_str(&format!(" in {} {times}", units::count(count)));
        if count > 1 {
            text.push_str(&format!(", longest {}", units::time(max_ns)));
        }
    }
    text.push(')');
    if let (false, Some(call)) = (is_sleep, share.call.as_deref()) {
        text.push_str(&format!(", more in {call} than in any other call"));
    }
    if let Some(place) = &share.place {
        text.push_str(&sampled(place, &share.cause));
    }
    if let Some(resource) = &share.resource {
        if let Some(name) = &resource.name {
            text.push_str(&format!(", for {} {name}", resource.kind));
        }
    }
    if let Some(owner) = &share.owner {
        text.push_str(&match share.cause.as_str() {
            "waiting for a CPU" => format!(", which {owner} had"),
            _ => format!(", held by {owner}"),
        });
    }
    if let Some(caller) = &share.caller {
        text.push_str(&format!(", called from {caller}"));
    }
    Some(text)
}

/// `, most of it in fill (matrix.c:31): 97 % of 118 samples (92 to 99 %)`
fn sampled(place: &SampledPlace, cause: &str) -> String {
    let SampledPlace {
        function,
        samples,
        of,
        ..
    } = place;
    let at = place.place.as_ref().map(|at| format!(" ({at})"));
    let own = format!("{function}{}", at.unwrap_or_default());
    let part = percent(*samples, *of);
    let most = match part >= MOST {
        true => "most of it",
        false => "more than anywhere else",
    };
    let whereabouts = match (&place.inside, cause) {
        (_, "kernel CPU") => format!("in calls from {own}"),
        (Some(inside), _) => format!("in {inside}, called from {own}"),
        (None, _) => format!("in {own}"),
    };
    let (low, high) = interval(*samples, *of);
    format!(
        ", {most} {whereabouts}: {part:.0} % of {} ({:.0} to {:.0} %)",
        units::counted(*of, "sample"),
        low * 100.0,
        high * 100.0
    )
}

/// `of 2.03 s: 97 % timer, 2 % computing in the program, 1 % other`
pub fn shares(headline: &Headline) -> Option<String> {
    let mut by_cause: Vec<(&str, u64)> = Vec::new();
    for share in &headline.shares {
        let name = name(&share.cause);
        match by_cause.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ns)) => *ns = ns.saturating_add(share.ns),
            None => by_cause.push((name, share.ns)),
        }
    }
    by_cause.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let is_told = |at: usize, ns: u64| at < SHARES && percent(ns, headline.of_ns) >= LEAST;
    let told = (0..)
        .zip(&by_cause)
        .take_while(|(at, (_, ns))| is_told(*at, *ns))
        .count();
    if told < 2 {
        return None; // the sentence before this one is enough
    }
    let mut parts: Vec<String> = by_cause[..told]
        .iter()
        .map(|(name, ns)| format!("{:.0} % {name}", percent(*ns, headline.of_ns)))
        .collect();
    let rest: u64 = by_cause[told..].iter().map(|(_, ns)| *ns).sum();
    if percent(rest, headline.of_ns) >= LEAST {
        parts.push(format!("{:.0} % other", percent(rest, headline.of_ns)));
    }
    let mut text = format!("of {}: {}", units::time(headline.of_ns), parts.join(", "));
    if headline.idle_ns > 0 {
        let idle = units::time(headline.idle_ns);
        text.push_str(&format!("; threads waited {idle} for work beside it"));
    }
    Some(text)
}

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
            is_for_lock: longest.is_some_and(|wait| wait.owner_certainty.is_some()),
            ..Share::default()
        }
    };
    cells
        .filter(|(.., cell)| cell.blocked_ns > 0)
        .map(share)
        .collect()
}
