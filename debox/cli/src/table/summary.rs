//! The first lines: what matters most, how long the program ran, and where its time went.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anstyle::Style;
use debox::report::headline_words;
use debox::report::Report;

use super::processes::shortened;
use super::sleeps::are_for_work;
use super::{line, TableOptions};
use crate::units::{self, Scale};

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let scale = Scale::of(report.duration_ns);
    let plain = Style::new();
    if let Some(why) = &report.incomplete {
        line(out, why, Style::new().bold(), options)?;
        if report.threads.is_empty() {
            let text = format!("the command ran {}", units::time(report.duration_ns));
            line(out, &text, plain, options)?;
            return end(report).map_or(Ok(()), |end| line(out, &end, plain, options));
        }
    }
    if let Some(headline) = &report.headline {
        if let Some(text) = headline_words::what_matters(headline) {
            line(out, &text, Style::new().bold(), options)?;
        }
        if let Some(text) = headline_words::shares(headline) {
            line(out, &text, plain, options)?;
        }
    }
    line(out, &ran(report, scale), plain, options)?;
    if let Some(classes) = classes(report, scale) {
        line(out, &classes, plain, options)?;
    }
    if let Some(text) = steal(report, scale) {
        line(out, &text, plain, options)?;
    }
    if let Some(end) = end(report) {
        line(out, &end, plain, options)?;
    }
    if let Some(text) = live_on(report, options) {
        line(out, &text, plain, options)?;
    }
    Ok(())
}

/// Time stolen by the hypervisor: from the threads' CPU time if the kernel reports that, otherwise
/// from all CPUs.
fn steal(report: &Report, scale: Scale) -> Option<String> {
    let shown = |ns: Option<u64>| ns.filter(|&ns| scale.shows(ns)).map(units::time);
    match (shown(report.totals.stolen_ns), shown(report.steal_ns)) {
        (Some(stolen), _) => Some(format!(
            "the hypervisor took {stolen} while threads were on a CPU: included in CPU time"
        )),
        (None, Some(steal)) => Some(format!(
            "the hypervisor took {steal} from this machine's CPUs meanwhile"
        )),
        (None, None) => None,
    }
}

/// Where the time went, in one unit. The parts add up to the sum of the threads' lifetimes.
fn ran(report: &Report, scale: Scale) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "ran {} {}: {} user CPU, {} kernel CPU, {} asleep, {} waiting for a CPU",
        scale.show(report.duration_ns),
        scale.unit,
        scale.show(totals.user_cpu_ns),
        scale.show(totals.kernel_cpu_ns),
        scale.show(totals.blocked_ns),
        scale.show(totals.runqueue_ns.saturating_add(totals.preempted_ns)),
    );
    if let Some(irq_ns) = totals.irq_ns {
        text.push_str(&format!(", {} in interrupts", scale.show(irq_ns)));
    }
    if let Some(outside_ns) = totals.outside_ns {
        text.push_str(&format!(", {} outside", scale.show(outside_ns)));
    }
    let processes: BTreeSet<u32> = report.threads.iter().map(|thread| thread.pid).collect();
    let threads = match (report.threads.len(), processes.len()) {
        (0 | 1, _) => return text,
        (threads, 1) => format!("{} threads", units::count(threads as u64)),
        (threads, processes) => format!(
            "{} threads in {} processes",
            units::count(threads as u64),
            units::count(processes as u64)
        ),
    };
    let together = scale.show(totals.wall_ns);
    text.push_str(&format!(
        "; {threads} lived {together} {} together",
        scale.unit
    ));
    text
}

/// Waits of threads that have no work, or have handed it to others.
const WORK: &str = "for other threads";

/// Sleep by class, idle last: `asleep: 2.1 disk, 0.4 lock, 0.9 idle`; then sleep without a class.
fn classes(report: &Report, scale: Scale) -> Option<String> {
    let mut by_class: BTreeMap<&str, u64> = BTreeMap::new();
    for sleep in &report.sleeps {
        let class = match are_for_work(sleep) {
            true => WORK,
            false => sleep.class.as_str(),
        };
        let sum = by_class.entry(class).or_default();
        *sum = sum.saturating_add(sleep.blocked_ns);
    }
    let untapped: u64 = report.untapped.iter().map(|call| call.blocked_ns).sum();
    let known = by_class
        .values()
        .fold(untapped, |sum, ns| sum.saturating_add(*ns));
    let mut parts: Vec<(&str, u64)> = by_class.into_iter().collect();
    parts.sort_by_key(|&(class, ns)| (class == "idle" || class == WORK, std::cmp::Reverse(ns)));
    // Parts that round to zero would only make the line longer.
    parts.retain(|&(_, ns)| scale.shows(ns));
    if scale.shows(untapped) {
        parts.push(("in calls that the user tap does not see", untapped));
    }
    let left = report.totals.blocked_ns.saturating_sub(known);
    let going_on = going_on(report).min(left);
    if scale.shows(going_on) {
        parts.push(("in calls that had not returned", going_on));
    }
    let siteless = left - going_on;
    if scale.shows(siteless) {
        parts.push(("without a site", siteless));
    }
    let is_classed = parts.iter().any(|&(part, _)| part != "without a site");
    if !is_classed {
        return None;
    }
    let parts: Vec<_> = parts
        .iter()
        .map(|&(class, ns)| format!("{} {class}", scale.show(ns)))
        .collect();
    Some(format!("asleep: {}", parts.join(", ")))
}

/// Upper limit for the sleep of calls in flight, which no row contains yet.
fn going_on(report: &Report) -> u64 {
    const AWAKE: [&str; 2] = ["running", "waiting for a CPU"];
    let asleep = report.in_flight.iter();
    let asleep = asleep.filter(|call| !AWAKE.contains(&call.label.as_str()));
    asleep.fold(0, |sum, call| sum.saturating_add(call.for_ns))
}

/// Processes that the command left running, and how to monitor them further.
fn live_on(report: &Report, options: &TableOptions) -> Option<String> {
    /// Processes that are named; the others are counted.
    const NAMED: usize = 3;
    let pids = &report.live_on;
    let name = |pid: &u32| {
        let of_pid = report.processes.iter().rfind(|process| process.pid == *pid);
        match of_pid
            .map(|process| process.name())
            .filter(|name| !name.is_empty())
        {
            Some(name) => format!("{} ({pid})", shortened(&name, options)),
            None => pid.to_string(),
        }
    };
    let mut named: Vec<String> = pids.iter().take(NAMED).map(name).collect();
    if pids.len() > NAMED {
        named.push(format!("{} more", pids.len() - NAMED));
    }
    let (they, them) = match pids.len() {
        0 => return None,
        1 => ("1 process that it started lives on and is", "it"),
        _ => ("processes that it started live on and are", "them"),
    };
    let count = if pids.len() > 1 {
        format!("{} ", pids.len())
    } else {
        String::new()
    };
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    Some(format!(
        "{count}{they} not in this report from here on: {}; `debox attach -p {}` goes on with {them}, and \
         --follow waits for their end",
        named.join(", "),
        list.join(",")
    ))
}

/// How the command ended, unless it simply succeeded.
fn end(report: &Report) -> Option<String> {
    match report.exit_status {
        Some(0) => None,
        Some(status) if status > 128 => Some(format!(
            "the command ended with status {status} (128 + signal {})",
            status - 128
        )),
        Some(status) => Some(format!("the command ended with status {status}")),
        None if report.command.is_empty() => None,
        None => Some("the command still runs".to_string()),
    }
}
