//! The headline in words.

use kit_units as units;

use super::{interval, Headline, InCall, SampledPlace};

/// From this percentage on, a share is most of the time.
pub const MOST: f64 = 50.0;
/// If the longest share is below this percentage, the time is said to have no single cause.
const ONE_CAUSE: f64 = 100.0 / 3.0;
/// Causes with a smaller share (percent) are not named, and no more than `SHARES` causes.
const LEAST: f64 = 1.0;
const SHARES: usize = 6;
/// Causes that are named for a call, at most.
const PARTS: usize = 4;

pub fn percent(ns: u64, of_ns: u64) -> f64 {
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
    if let Some(count) = share.count {
        let times = match (share.cause.as_str(), count) {
            ("CPU quota", 1) => "wait",
            ("CPU quota", _) => "waits",
            (_, 1) => "sleep",
            (_, _) => "sleeps",
        };
        text.push_str(&format!(" in {} {times}", units::count(count)));
        if let Some(max_ns) = share.max_ns.filter(|_| count > 1) {
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
