//! What a reader should know first, in sentences, each with the section that shows it.

use std::fmt::Write;

use crate::aggregate::Aggregate;
use crate::report::{Finding, FindingKind, Report, SlowCall, SlowSleep, Trend, Wait};
use crate::units::{bytes, count, time};

const WAITS: usize = 6;
const GROWTHS: usize = 4;
/// Waits that are long only together.
const SHARED: usize = 4;
/// A finding is about this part of the time that is no idle wait, or more.
const PART_MIN: f64 = 0.01;
/// Calls that fail: so many, and this part of all.
const ERRORS_MIN: u64 = 100;
const ERRORS_PART_MIN: f64 = 0.2;

/// The kernel's resource, as one says it: `the inode lock of /x`, `the page read`.
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
        (Some(tid), false) => format!("thread {tid} ({comm})"),
        (_, true) => format!("threads named {comm}"),
        (None, false) => comm.clone(),
    };
    text.push_str(match certainty {
        "exact" => " held it",
        "last reader" => " was the last known to hold it, as a reader,",
        _ => " was the last known to hold it,",
    });
    match wait.owner_doing.as_deref() {
        Some("on CPU") => text.push_str(" while on a CPU"),
        Some("waiting for a CPU") => text.push_str(" while it waited for a CPU itself"),
        Some(label) => {
            let _ = write!(text, " while it waited itself: {label}");
        }
        None => {}
    }
    Some(text.trim_end_matches(',').to_string())
}

fn capital(mut text: String) -> String {
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
    if wait.call == crate::build::USER {
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

/// Such waits are told of calls in flight, whatever part of the time they are.
const HANGING_NS: u64 = 10_000_000;
const HANGING: usize = 5;

/// Whether a call that had not returned is worth a sentence: one that waits for what is no idle wait, or
/// that went on from before the recording to its end.
fn hangs(call: &SlowCall, least: u64, span_ns: u64) -> bool {
    let active = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
    active >= least.max(HANGING_NS) || (call.partial && call.budget.wall_ns >= span_ns / 10 * 9)
}

/// The sleep that it is in.
fn open_sleep(call: &SlowCall) -> Option<&SlowSleep> {
    call.sleeps.iter().find(|sleep| sleep.in_flight)
}

/// `others`: threads that are in the same.
fn in_flight_sentence(call: &SlowCall, others: usize) -> String {
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
                Some(crate::build::NOT_KNOWN) => text.push_str("; who held it is not known"),
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

/// Sentences with their weight, those that read the same once.
fn in_flight(report: &Report, least: u64) -> Vec<(String, u64)> {
    type Like<'a> = (&'a str, &'a str, Option<(&'a str, Option<&'a str>)>);
    // The first of those that are alike, how many others there are, and what all took.
    let mut alike: Vec<(Like, &SlowCall, usize, u64)> = Vec::new();
    let span = report.recording.span_ns;
    let hanging = report.in_flight.iter();
    for call in hanging.filter(|call| hangs(call, least, span)) {
        let sleep = open_sleep(call).map(|sleep| (&*sleep.label, sleep.resource.as_deref()));
        let like = (&*call.comm, &*call.call, sleep);
        let active = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
        match alike.iter_mut().find(|(known, ..)| *known == like) {
            Some((_, _, others, all)) => {
                *others += 1;
                *all = all.saturating_add(active);
            }
            None => alike.push((like, call, 0, active)),
        }
    }
    let told = alike.iter().take(HANGING);
    told.map(|(_, call, others, all)| (in_flight_sentence(call, *others), *all))
        .collect()
}

fn growth_sentence(trend: &Trend) -> Option<(String, u64)> {
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
    // What it costs beyond what it would at the first bin's cost.
    let beyond = |bin: &(u64, u64, u64, u64, u64)| {
        bin.3
            .saturating_sub(first.3)
            .saturating_mul(bin.1 - bin.0 + 1)
    };
    let weight = of.bins.iter().map(beyond).fold(0u64, u64::saturating_add);
    Some((text, weight))
}

/// An anchor that has no characters of its own meaning.
pub fn anchor(section: &str, name: &str) -> String {
    let name: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    format!("{section}-{name}")
}

pub fn findings(report: &Report) -> Vec<Finding> {
    let totals = &report.totals;
    let active = totals.wall_ns.saturating_sub(totals.idle_ns).max(1);
    let between = report.between_calls.as_ref();
    let least = ((active as f64 * PART_MIN) as u64).max(1);
    let part = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / active as f64);
    let mut found = Vec::new();
    let mut add = |kind, text: String, evidence: String, weight_ns| {
        found.push(Finding {
            kind,
            text,
            evidence,
            weight_ns,
        });
    };
    let hanging = in_flight(report, least);
    for (text, weight) in &hanging {
        add(
            FindingKind::InFlight,
            text.clone(),
            "in-flight".into(),
            *weight,
        );
    }
    // Waits of which none had ended are told already.
    let is_told = |wait: &Wait| {
        let is_it = |call: &&SlowCall| {
            call.comm == wait.comm
                && call.call == wait.call
                && (call.pid == call.tid) == wait.is_main
                && open_sleep(call).is_some_and(|sleep| sleep.label == wait.label)
        };
        let open = report.in_flight.iter().filter(is_it).count() as u64;
        !hanging.is_empty() && open >= wait.count
    };
    let waits = report.waits.iter().enumerate();
    let waits = waits
        .filter(|(_, wait)| wait.class != "idle" && wait.blocked_ns >= least && !is_told(wait));
    for (index, wait) in waits.take(WAITS) {
        let evidence = anchor("wait", &index.to_string());
        add(
            FindingKind::Wait,
            wait_sentence(wait),
            evidence,
            wait.blocked_ns,
        );
    }
    // Waits that many threads share, or that come from many places: none of them need be long by itself.
    let mut cells = Vec::new();
    for (call, row) in report.matrix.calls.iter().zip(&report.matrix.cells) {
        for (label, cell) in report.matrix.labels.iter().zip(row) {
            let told = report.waits.iter().filter(|wait| {
                wait.call == *call && wait.label == label.label && wait.blocked_ns >= least
            });
            let told = told.fold(0u64, |sum, wait| sum.saturating_add(wait.blocked_ns));
            if label.class != "idle" && cell.blocked_ns >= least && told < cell.blocked_ns / 2 {
                cells.push((cell.blocked_ns, call, label, cell));
            }
        }
    }
    cells.sort_by_key(|(blocked, ..)| std::cmp::Reverse(*blocked));
    for (blocked, call, label, cell) in cells.into_iter().take(SHARED) {
        let place = if call == crate::build::USER {
            "between calls"
        } else {
            call
        };
        let text = format!(
            "Threads waited {} for {} in {place} ({} times), each thread or place only a part of it.",
            time(blocked),
            label.label,
            count(cell.sleeps)
        );
        add(FindingKind::Wait, text, "matrix".into(), blocked);
    }
    let growths = report.trends.iter().filter_map(|trend| {
        let (text, weight) = growth_sentence(trend)?;
        Some((text, anchor("trend", &trend.call), weight))
    });
    for (text, evidence, weight) in growths.take(GROWTHS) {
        add(FindingKind::Growth, text, evidence, weight);
    }
    let returned = report.calls.iter().filter(|call| call.count > 0);
    if let Some(call) = returned.max_by_key(|call| call.budget.cpu_ns) {
        let cpu = call.budget.cpu_ns;
        if cpu >= least && totals.cpu_ns > 0 {
            let text = format!(
                "{} took {} of CPU time in the kernel, {:.0} % of that of all calls: {} calls of {} \
                 each on average.",
                call.name,
                time(cpu),
                100.0 * cpu as f64 / totals.cpu_ns as f64,
                count(call.count),
                time(cpu / call.count.max(1))
            );
            add(FindingKind::Cpu, text, anchor("call", &call.name), cpu);
        }
    }
    let outside = |of: fn(&crate::report::Budget) -> u64| {
        of(totals).saturating_add(between.map_or(0, |call| of(&call.budget)))
    };
    let waiting = outside(|budget| budget.runqueue_ns);
    let preempted = outside(|budget| budget.preempted_ns);
    if waiting.saturating_add(preempted) >= least.saturating_mul(5) {
        let text = format!(
            "Threads that could have run waited {} for a CPU after they were woken, and were pushed off \
             one for {}: together {} of the time that is no idle wait. The machine has {} CPUs.",
            time(waiting),
            time(preempted),
            part(waiting.saturating_add(preempted)),
            report.recording.cpus
        );
        let weight = waiting.saturating_add(preempted);
        add(FindingKind::RunQueue, text, "over-time".into(), weight);
    }
    for call in &report.calls {
        let failed: u64 = call.errors.iter().map(|(_, count)| *count).sum();
        let is_much = failed >= ERRORS_MIN && failed as f64 >= call.count as f64 * ERRORS_PART_MIN;
        let cost = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
        if let (true, Some((error, most))) = (is_much && cost >= least, call.errors.first()) {
            let text = format!(
                "{} of {} calls of {} failed, {} of them with {error}.",
                count(failed),
                count(call.count),
                call.name,
                count(*most)
            );
            let weight = (cost as f64 * failed as f64 / call.count.max(1) as f64) as u64;
            add(
                FindingKind::Errors,
                text,
                anchor("call", &call.name),
                weight,
            );
        }
    }
    let spin: u64 = report
        .calls
        .iter()
        .fold(0, |sum, call| call.spin_ns.saturating_add(sum));
    if spin >= least {
        let text = format!(
            "Threads spun {} for locks of the kernel, on the CPU.",
            time(spin)
        );
        add(FindingKind::Spin, text, "calls".into(), spin);
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight_ns));
    if found.is_empty() {
        let text = if report.recording.calls == 0 {
            "The history has no calls.".to_string()
        } else {
            format!(
                "Nothing stands out: {} calls took {} without idle waits, and no wait, no CPU time and \
                 no growth was worth a sentence.",
                count(report.recording.calls),
                time(active)
            )
        };
        found.push(Finding {
            kind: FindingKind::Nothing,
            text,
            evidence: "calls".into(),
            weight_ns: 0,
        });
    }
    found
}

/// What was lost, is missing, or is not known: never hidden.
pub fn caveats(report: &Report, sums: &Aggregate) -> Vec<String> {
    let recording = &report.recording;
    let lost = &recording.lost;
    let mut said = Vec::new();
    if !recording.complete {
        said.push(
            "The recording has no end: the recorder was killed, or writes on. What came last may be \
             missing."
                .to_string(),
        );
    }
    if recording.cut_off_bytes > 0 {
        said.push(format!(
            "{} at the end of a file could not be read: the recorder was stopped while it wrote them \
             (`debox repair` makes the file whole without them).",
            bytes(recording.cut_off_bytes)
        ));
    }
    if lost.records > 0 {
        let all = lost.records.saturating_add(recording.rows);
        said.push(format!(
            "{} records were lost, {:.1} % of all: all counts and sums are too low by them (a larger \
             --buffer loses fewer).",
            count(lost.records),
            100.0 * lost.records as f64 / all.max(1) as f64
        ));
    }
    for (number, what) in [
        (lost.sleeps, "sleeps of calls that are there were lost: their time is in the budgets, but under no label."),
        (lost.stacks, "stacks could not be had: their calls and sleeps have none."),
        (lost.threads, "threads were not monitored: nothing of them is here (--max-threads)."),
        (lost.probe_misses, "events were not shown by the kernel: some times may be too long or too short."),
    ] {
        if number > 0 {
            said.push(format!("{} {what}", count(number)));
        }
    }
    if recording.filtered_out > 0 || recording.filter.is_some() {
        said.push(format!(
            "Only records with `{}` were kept; {} others were not, and no figure here counts them.",
            recording.filter.as_deref().unwrap_or("a filter"),
            count(recording.filtered_out)
        ));
    }
    let of_calls = |of: fn(&crate::report::Call) -> u64| -> u64 {
        report
            .calls
            .iter()
            .chain(&report.between_calls)
            .map(of)
            .sum()
    };
    let partial = of_calls(|call| call.partial);
    if partial > 0 {
        said.push(format!(
            "{} calls began before they were monitored: their times are lower bounds.",
            count(partial)
        ));
    }
    let in_flight = of_calls(|call| call.in_flight);
    if in_flight > 0 {
        said.push(format!(
            "{} had not returned when the recording ended: what was taken until then is in the sums, \
             and not in counts and distributions.",
            match in_flight {
                1 => "1 call".to_string(),
                several => format!("{} calls", count(several)),
            }
        ));
    }
    let left_out = of_calls(|call| call.sleeps_left_out);
    if left_out > 0 {
        said.push(format!(
            "{} sleeps are not listed, because their calls had too many: their time is `not listed`.",
            count(left_out)
        ));
    }
    if recording.stacks_from_ns > 0 && recording.calls > 0 {
        said.push(format!(
            "Calls shorter than {} have no stack and no caller (--stacks-from of the recording).",
            time(recording.stacks_from_ns)
        ));
    }
    let folded = [
        (sums.waits_folded, "waits"),
        (sums.stacks_folded, "sleeps' stacks"),
        (sums.threads.left_out, "calls' threads"),
    ];
    for (number, what) in folded {
        if number > 0 {
            said.push(format!(
                "{} {what} were of too many different kinds for the tables, and are under (other).",
                count(number)
            ));
        }
    }
    if !sums.has_irq && recording.calls > 0 {
        said.push(
            "Interrupts were not measured apart: they are inside CPU time (--detail irq of the \
             recording)."
                .to_string(),
        );
    }
    said.push(
        "All times are from inside the kernel, from the entry of a call to its exit. The history has no \
         times taken in the program around its calls, so the two cannot be set against each other here; \
         `debox run --tap user` takes them."
            .to_string(),
    );
    said
}
