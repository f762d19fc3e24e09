//! Findings in words.

use std::fmt::Write;

use crate::parts::USER;
use crate::report::{Budget, CpuWaits, FindingKind, Trend, Wait};
use crate::waits::SEVERAL_OWNERS;
use kit_units::{count, time};

/// The kernel resource in words: `the inode lock of /x`, `the page read`.
fn what(wait: &Wait) -> String {
    match &wait.resource {
        Some(resource) if resource.contains(&wait.label) => format!("the {resource}"),
        Some(resource) => format!("{} ({resource})", wait.label),
        None if wait.resources > 1 => {
            format!("{} ({} different ones)", wait.label, count(wait.resources))
        }
        None => wait.label.clone(),
    }
}

fn who(wait: &Wait) -> String {
    match (wait.is_main, wait.many_threads) {
        (true, false) => format!("the main thread of {} ({})", wait.comm, wait.tid),
        (true, true) => format!("main threads of {}", wait.comm),
        (false, false) => format!("thread {} ({})", wait.tid, wait.comm),
        (false, true) => format!("threads named {}", wait.comm),
    }
}

fn owner(wait: &Wait) -> Option<String> {
    let certainty = wait.owner_certainty.as_deref()?;
    let Some(comm) = &wait.owner_comm else {
        return Some("who held it is not known".to_string());
    };
    let mut text = match (wait.owner_tid, wait.many_owners) {
        _ if comm == SEVERAL_OWNERS => comm.clone(),
        (Some(tid), false) => format!("thread {tid} ({comm})"),
        (_, true) => format!("threads named {comm}"),
        (None, false) => comm.clone(),
    };
    let are_many = wait.many_owners || comm == SEVERAL_OWNERS;
    let [was, they, themselves] = match are_many {
        true => ["were", "they", "themselves"],
        false => ["was", "it", "itself"],
    };
    let _ = match certainty {
        "exact" => write!(text, " held it"),
        "last reader" => write!(text, " {was} the last known to hold it, as a reader,"),
        _ => write!(text, " {was} the last known to hold it,"),
    };
    match wait.owner_doing.as_deref() {
        Some("on CPU") => text.push_str(" while on a CPU"),
        Some("waiting for a CPU") => {
            let _ = write!(text, " while {they} waited for a CPU {themselves}");
        }
        Some(label) => {
            let _ = write!(text, " while {they} waited {themselves}: {label}");
        }
        None => {}
    }
    Some(text.trim_end_matches(',').to_string())
}

pub fn capital(mut text: String) -> String {
    if let Some(first) = text.get(..1) {
        let first = first.to_uppercase();
        text.replace_range(..1, &first);
    }
    text
}

pub fn wait_sentence(wait: &Wait) -> String {
    let mut text = format!(
        "{} waited {} for {}",
        who(wait),
        time(wait.blocked_ns),
        what(wait)
    );
    if wait.call == USER {
        text.push_str(" between calls");
    } else {
        let _ = write!(text, " in {}", wait.call);
    }
    if wait.count > 1 {
        let _ = write!(
            text,
            " ({} times, {} the longest)",
            count(wait.count),
            time(wait.longest_ns)
        );
    }
    if let Some(caller) = &wait.caller {
        let _ = write!(text, ", called from {caller}");
    }
    if let Some(owner) = owner(wait) {
        let _ = write!(text, "; {owner}");
    }
    text.push('.');
    capital(text)
}

/// The sentence about a call that grows, and the cost of the growth.
pub fn growth_sentence(trend: &Trend) -> Option<(String, u64)> {
    let (of, what) = if trend.cpu.grows {
        (&trend.cpu, "CPU time")
    } else if trend.wall.grows {
        (&trend.wall, "wall time")
    } else {
        return None;
    };
    let (first, last) = (of.bins.first()?, of.bins.last()?);
    let text = format!(
        "{} gets more expensive as the program runs: the median {what} of a call rose from {} over \
         its first {} invocations to {} over its last {} (of {}; rank correlation {:.2}).",
        trend.call,
        time(first.3),
        count(first.1 - first.0 + 1),
        time(last.3),
        count(last.1 - last.0 + 1),
        count(trend.count),
        of.rho.unwrap_or(0.0),
    );
    // The cost beyond what the invocations would take at the first bin's cost.
    let beyond = |bin: &(u64, u64, u64, u64, u64)| {
        bin.3
            .saturating_sub(first.3)
            .saturating_mul(bin.1 - bin.0 + 1)
    };
    let weight = of.bins.iter().map(beyond).fold(0u64, u64::saturating_add);
    Some((text, weight))
}

/// `16 ms waiting for a CPU`: the parts of a budget without its idle waits, longest first.
pub fn parts(budget: &Budget, resting: u64, waits: &str) -> Vec<(u64, FindingKind, String)> {
    let asleep = budget.blocked_ns.saturating_sub(budget.idle_ns);
    let asleep = asleep.saturating_sub(resting);
    let asleep_words = if waits.is_empty() {
        "asleep".to_string()
    } else {
        format!("asleep ({waits})")
    };
    let mut parts = vec![
        (budget.cpu_ns, FindingKind::Cpu, "on the CPU".into()),
        (asleep, FindingKind::Wait, asleep_words),
        (
            budget.runqueue_ns,
            FindingKind::RunQueue,
            "waiting for a CPU".into(),
        ),
        (
            budget.preempted_ns,
            FindingKind::RunQueue,
            "pushed off the CPU".into(),
        ),
        (
            budget.irq_ns.unwrap_or(0),
            FindingKind::Cpu,
            "in interrupts".into(),
        ),
    ];
    parts.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
    parts
}

/// A sentence names at most this many owners of CPUs, and none with less than this percentage of the
/// time.
const CPU_OWNERS: usize = 2;
const CPU_OWNER_LEAST: u64 = 20;

/// Who had the CPU while threads waited for one, with a leading space.
pub fn cpu_owner_sentence(waits: &CpuWaits) -> String {
    let mut text = String::new();
    let is_much =
        |ns: u64| ns.saturating_mul(100) >= waits.waited_ns.saturating_mul(CPU_OWNER_LEAST);
    if waits.throttled_ns > 0 && is_much(waits.throttled_ns) {
        let group = match &waits.group {
            Some(group) => format!("the control group {group}"),
            None => "a control group".to_string(),
        };
        let quota = time(waits.throttled_ns);
        text.push_str(&format!(
            " For {quota} of that {group} had used up its CPU quota."
        ));
    }
    let named = waits.owners.iter().filter(|owner| is_much(owner.ns));
    let named = named.filter_map(|owner| {
        let (comm, pid) = (owner.comm.as_ref()?, owner.pid?);
        let own = if owner.kind == "own" { " itself" } else { "" };
        Some(format!(
            "{comm} ({pid}){own} had the CPU for {}",
            time(owner.ns)
        ))
    });
    let named: Vec<String> = named.take(CPU_OWNERS).collect();
    if !named.is_empty() {
        text.push_str(&format!(" {}.", named.join(", ")));
    }
    text
}
