//! A guard's result for people: what blocked, longest first.

use std::collections::BTreeMap;

use debox::frame::Frame;
use kit_console::printable;

use super::result::{Guarded, Violation};
use crate::options::Guard;
use crate::units;

/// Kinds of violations that are shown, at most.
const SHOWN: usize = 20;

/// Violations by the same call from the same place, blocked for the same reason.
struct Kind<'a> {
    worst: &'a Violation,
    count: u64,
    blocked_ns: u64,
}

pub fn text(guarded: &Guarded, arguments: &Guard) -> String {
    let mut text = String::new();
    let limit = units::time(arguments.max_blocked_ns());
    for thread in &guarded.threads {
        let own = guarded
            .violations
            .iter()
            .filter(|one| one.tid == thread.tid);
        let violations = own.count() as u64;
        let longest = units::time(thread.longest_blocked_ns);
        text.push_str(&format!(
            "{}/{}: {} calls, {} waits for events; ",
            printable(&thread.comm),
            thread.tid,
            units::count(thread.calls),
            units::count(thread.waits)
        ));
        text.push_str(&match violations {
            0 => format!("no other call slept longer than {limit} (longest: {longest})\n"),
            n => format!(
                "{} slept longer than {limit} (longest: {longest})\n",
                calls(n)
            ),
        });
        for waits in &thread.runtime_waits {
            let late = match waits.without_cpu_ns {
                0 => String::new(),
                ns => format!("; {} of it for a thread without a CPU", units::time(ns)),
            };
            text.push_str(&format!(
                "    {} itself, {}: {} in {}, longest {} ({}{late})\n",
                printable(&waits.runtime),
                waits.phase,
                units::time(waits.blocked_ns),
                calls(waits.count),
                units::time(waits.longest_ns),
                printable(&waits.why)
            ));
        }
    }
    for (shown, kind) in kinds(&guarded.violations).into_iter().enumerate() {
        if shown == SHOWN {
            text.push_str("\n(more in --format json)\n");
            break;
        }
        text.push_str(&format!(
            "\n{}, {} after the start:\n  {}\n",
            match kind.count {
                1 => "Once".to_string(),
                n => format!(
                    "{} times, {} in all; the longest",
                    units::count(n),
                    units::time(kind.blocked_ns)
                ),
            },
            units::time(kind.worst.at_ns),
            kind.worst.sentence()
        ));
        for frame in &kind.worst.frames {
            text.push_str(&format!("    {}\n", printable(&frame.to_string())));
        }
    }
    if guarded.violations_left_out > 0 {
        let left_out = units::count(guarded.violations_left_out);
        text.push_str(&format!("\n{left_out} more are not listed.\n"));
    }
    for doubt in guarded.hints.iter().chain(&guarded.doubts) {
        text.push_str(&format!("\n{}\n", printable(doubt)));
    }
    text
}

fn calls(n: u64) -> String {
    match n {
        1 => "1 call".to_string(),
        n => format!("{} calls", units::count(n)),
    }
}

fn kinds(violations: &[Violation]) -> Vec<Kind<'_>> {
    let mut kinds: BTreeMap<(&str, &str, &[Frame]), Kind> = BTreeMap::new();
    for one in violations {
        let kind = kinds
            .entry((&one.syscall, &one.label, &one.frames))
            .or_insert(Kind {
                worst: one,
                count: 0,
                blocked_ns: 0,
            });
        kind.count += 1;
        kind.blocked_ns += one.blocked_ns;
        if one.blocked_ns > kind.worst.blocked_ns {
            kind.worst = one;
        }
    }
    let mut kinds: Vec<Kind> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.blocked_ns));
    kinds
}
