// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold of any report, whatever was measured, and of any program that knows its own CPU
//! time and page faults.
//!
//! Sums are compared to the nanosecond: every stamp closes one part and opens the next, so there is
//! nothing to round.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::kernel_has;
use crate::ms;
use crate::rows::number;
use crate::rows::rows;
use crate::rows::text;
use crate::slowness;
use crate::Facts;

const PARTS: [&str; 6] = [
    "cpu_ns",
    "blocked_ns",
    "runqueue_ns",
    "preempted_ns",
    "irq_ns",
    "outside_ns",
];
const LIFE_PARTS: [&str; 7] = [
    "user_cpu_ns",
    "kernel_cpu_ns",
    "blocked_ns",
    "runqueue_ns",
    "preempted_ns",
    "irq_ns",
    "outside_ns",
];
const LOSSES: [&str; 7] = [
    "records",
    "sleeps",
    "stacks",
    "threads",
    "rows",
    "probe_misses",
    "refused",
];
const USER: &str = "(user)";
const SWITCH_SLACK_NS: u64 = 4_000;
/// What an interrupt that wakes a task goes on for, and the switch to that task.
const PREEMPTION_SLACK_NS: u64 = 15_000;

/// Everything about a report that cannot be right, as sentences; empty when all is well.
pub fn check_report(report: &Value, facts: Option<&Facts>) -> Vec<String> {
    let mut problems = Vec::new();
    check_schema(report, &mut problems);
    // A report of another shape would only make the checks below stumble.
    if problems.is_empty() {
        check_losses(report, &mut problems);
        check_calls(report, &mut problems);
        check_totals(report, &mut problems);
        check_threads(report, &mut problems);
        check_sleeps(report, &mut problems);
        check_headline(report, &mut problems);
        check_cpu_waits(report, &mut problems);
        if let Some(facts) = facts {
            check_against_program(report, facts, &mut problems);
        }
    }
    problems
}

/// The shares are all of the time that is accounted for, the longest first, and no more than all threads had.
fn check_headline(report: &Value, problems: &mut Vec<String>) {
    let headline = &report["headline"];
    if headline.is_null() {
        return;
    }
    let shares: Vec<u64> = rows(headline, "shares")
        .iter()
        .map(|share| number(share, "ns"))
        .collect();
    let (of, idle) = (number(headline, "of_ns"), number(headline, "idle_ns"));
    if shares.iter().sum::<u64>() != of || !shares.iter().rev().is_sorted() {
        problems.push(format!("headline: {shares:?} of {of}"));
    }
    let all = number(&report["totals"], "wall_ns");
    if of + idle > all {
        problems.push(format!("headline: {of} and {idle} of {all}"));
    }
}

/// Who had the CPU: of each call, all that its threads waited for one.
fn check_cpu_waits(report: &Value, problems: &mut Vec<String>) {
    let has_detail = rows(report, "detail").iter().any(|name| name == "cpu");
    if !has_detail || report["tap"] != "kernel" {
        return;
    }
    for call in rows(report, "syscalls") {
        for part in ["runqueue", "preempted"] {
            let is_its_own =
                |wait: &&Value| wait["syscall"] == call["name"] && wait["part"] == part;
            let waits = rows(report, "cpu_waits").iter().filter(is_its_own);
            let told: u64 = waits.map(|wait| number(wait, "ns")).sum();
            let waited = number(call, &format!("{part}_ns"));
            if told != waited {
                problems.push(format!("{}: {told} of {waited} {part}", call["name"]));
            }
        }
    }
}

fn validator() -> &'static Validator {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();

    VALIDATOR.get_or_init(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/report-1.json");
        let text = std::fs::read_to_string(path).expect("the schema is checked in");
        let schema = serde_json::from_str(&text).expect("the schema is JSON");
        jsonschema::validator_for(&schema).expect("the schema is a schema")
    })
}

fn check_schema(report: &Value, problems: &mut Vec<String>) {
    for error in validator().iter_errors(report).take(5) {
        problems.push(format!("schema: {error} at {}", error.instance_path()));
    }
}

/// Whether the kernel (from 7.2 on) may skip the probes at a call where threads crowd on a CPU. It counts
/// more than what is missing, and what is missing must not be more than it counts: `Call::calls`.
fn calls_are_preempted() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| crate::kernel_has("trace_call_bpf_faultable"))
}

fn check_losses(report: &Value, problems: &mut Vec<String>) {
    for loss in LOSSES {
        let lost = number(&report["lost"], loss);
        if lost > 0 && !(loss == "probe_misses" && calls_are_preempted()) {
            problems.push(format!("{lost} {loss} lost"));
        }
    }
}

fn sum_of(row: &Value, parts: &[&str]) -> u64 {
    parts.iter().map(|part| number(row, part)).sum()
}

/// The parts of each call are its wall time, and the figures of one row fit each other.
fn check_calls(report: &Value, problems: &mut Vec<String>) {
    let mut names = BTreeMap::new();
    for row in rows(report, "syscalls") {
        let name = text(row, "name");
        let (calls, wall, max) = (
            number(row, "calls"),
            number(row, "wall_ns"),
            number(row, "max_ns"),
        );
        let mut problem = |what: String| problems.push(format!("{name}: {what}"));

        *names.entry(name).or_insert(0) += 1;
        if sum_of(row, &PARTS) != wall {
            problem(format!(
                "parts are {} ns, wall is {wall} ns",
                sum_of(row, &PARTS)
            ));
        }
        if number(row, "errors") + number(row, "restarts") > calls {
            problem("more errors and restarts than calls".to_string());
        }
        if max > wall {
            problem(format!("longest is {max} ns, wall is {wall} ns"));
        }
        if number(row, "spin_ns") > number(row, "cpu_ns") {
            problem("spun longer than it ran".to_string());
        }
        if name == USER || calls == 0 {
            continue;
        }
        let in_flight = rows(report, "in_flight")
            .iter()
            .any(|row| text(row, "syscall") == name);
        if !in_flight && u128::from(max) * u128::from(calls) < u128::from(wall) {
            problem(format!(
                "{calls} calls of at most {max} ns cannot take {wall} ns"
            ));
        }
        let (p50, p99) = (number(row, "p50_ns"), number(row, "p99_ns"));
        // The upper edge of a bucket is at most an eighth too high.
        if p50 > p99 || p99 > max + max / 8 + 1 {
            problem(format!(
                "percentiles {p50}, {p99} do not fit the longest, {max} ns"
            ));
        }
    }
    for (name, count) in names {
        if count > 1 {
            problems.push(format!("{name} has {count} rows"));
        }
    }
}

/// Calls and `(user)` add up to the totals.
fn check_totals(report: &Value, problems: &mut Vec<String>) {
    let totals = &report["totals"];
    let mut compare = |part: &str, calls: u64| {
        if number(totals, part) != calls {
            problems.push(format!(
                "totals.{part} is {}, calls {calls}",
                number(totals, part)
            ));
        }
    };
    let (between, calls): (Vec<&Value>, Vec<&Value>) = rows(report, "syscalls")
        .iter()
        .partition(|row| text(row, "name") == USER);
    let sum = |rows: &[&Value], part: &str| rows.iter().map(|row| number(row, part)).sum::<u64>();

    compare("user_cpu_ns", sum(&between, "cpu_ns"));
    compare("kernel_cpu_ns", sum(&calls, "cpu_ns"));
    for part in [
        "wall_ns",
        "blocked_ns",
        "runqueue_ns",
        "preempted_ns",
        "irq_ns",
        "outside_ns",
    ] {
        compare(part, sum(&between, part) + sum(&calls, part));
    }
    for life in rows(report, "threads").iter().chain([totals]) {
        // A wait that the machine hid is preempted time, and was a time on a CPU when it was stolen.
        let may_hold = sum_of(
            life,
            &["user_cpu_ns", "kernel_cpu_ns", "irq_ns", "outside_ns"],
        ) + number(life, "preempted_ns");
        let stolen = number(life, "stolen_ns");
        if stolen > may_hold {
            problems.push(format!(
                "{stolen} ns that the hypervisor took cannot be inside {may_hold} ns"
            ));
        }
    }
    let may_hide = sum_of(totals, &["user_cpu_ns", "kernel_cpu_ns", "outside_ns"]);
    let unseen = number(report, "unseen_wait_ns");
    if unseen > may_hide {
        problems.push(format!(
            "{unseen} ns of waiting that no switch showed cannot be inside {may_hide} ns"
        ));
    }
}

/// Each thread's life adds up, the lives add up to the totals, and every call was some thread's.
fn check_threads(report: &Value, problems: &mut Vec<String>) {
    let (totals, threads) = (&report["totals"], rows(report, "threads"));
    for thread in threads {
        let (parts, wall) = (sum_of(thread, &LIFE_PARTS), number(thread, "wall_ns"));
        let name = format!("thread {} {}", thread["tid"], thread["comm"]);
        if parts != wall {
            problems.push(format!("{name}: parts are {parts} ns, wall is {wall} ns"));
        }
        // A thread's last switch can come after its process was waited for, when it has to wait for
        // a CPU until then.
        let waited = number(thread, "runqueue_ns") + number(thread, "preempted_ns");
        let is_one = number(thread, "tid") != 0;
        if wall.saturating_sub(waited) > number(report, "duration_ns") && is_one {
            problems.push(format!("{name} lived longer than the session"));
        }
    }
    for part in LIFE_PARTS.iter().chain(&["wall_ns"]) {
        let lives: u64 = threads.iter().map(|thread| number(thread, part)).sum();
        if number(totals, part) != lives {
            problems.push(format!(
                "totals.{part} is {}, threads {lives}",
                number(totals, part)
            ));
        }
    }
    let by_threads: u64 = threads.iter().map(|thread| number(thread, "calls")).sum();
    let calls = rows(report, "syscalls")
        .iter()
        .filter(|row| text(row, "name") != USER);
    let by_calls: u64 = calls.map(|row| number(row, "calls")).sum();
    if by_threads != by_calls {
        problems.push(format!(
            "threads made {by_threads} calls, rows show {by_calls}"
        ));
    }
}

/// The sleeps of a call are its time asleep, and every sleep has a waker.
fn check_sleeps(report: &Value, problems: &mut Vec<String>) {
    let asked = rows(report, "detail")
        .iter()
        .any(|detail| detail == "sleeps");
    let mut asleep: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows(report, "sleeps") {
        let (count, blocked) = (number(row, "count"), number(row, "blocked_ns"));
        let name = format!(
            "{}, {} at {}",
            text(row, "syscall"),
            text(row, "label"),
            row["site"]
        );
        let max = number(row, "max_ns");

        *asleep.entry(text(row, "syscall")).or_insert(0) += blocked;
        if max > blocked || u128::from(max) * u128::from(count) < u128::from(blocked) {
            problems.push(format!(
                "{name}: {count} of at most {max} ns, {blocked} ns in all"
            ));
        }
        let of_sites = |field| -> u64 {
            rows(row, "call_sites")
                .iter()
                .map(|site| number(site, field))
                .sum()
        };
        if of_sites("count") > count || of_sites("blocked_ns") > blocked {
            problems.push(format!(
                "{name}: {count} sleeps of {blocked} ns, at its call sites {} of {} ns",
                of_sites("count"),
                of_sites("blocked_ns")
            ));
        }
        let wakers = rows(row, "wakers");
        let woken: u64 = wakers.iter().map(|waker| number(waker, "count")).sum();
        if woken != count {
            problems.push(format!("{name}: slept {count} times, woken {woken} times"));
        }
        for waker in wakers {
            let is_task = text(waker, "kind") == "task";
            if is_task == waker["tid"].is_null() || is_task == waker["comm"].is_null() {
                problems.push(format!(
                    "{name}: a task has a name and an interrupt none: {waker}"
                ));
            }
        }
    }
    // What the user tap did not see lies between the calls that it did see.
    let untapped = rows(report, "untapped").iter();
    *asleep.entry(USER).or_insert(0) += untapped.map(|row| number(row, "blocked_ns")).sum::<u64>();
    for row in rows(report, "syscalls").iter().filter(|_| asked) {
        let (name, blocked) = (text(row, "name"), number(row, "blocked_ns"));
        let by_site = asleep.remove(name).unwrap_or(0);
        // A sleep that has not ended has no row yet: the call is in flight, and says so.
        let in_flight = rows(report, "in_flight")
            .iter()
            .filter(|row| text(row, "syscall") == name);
        let open: u64 = in_flight.map(|row| number(row, "for_ns")).sum();
        // Sleeps of the program inside the user tap's stamps but not inside the call, such as a
        // stop, are between calls; their time is outside the call that encloses them.
        let outside = match name {
            USER => number(&report["totals"], "outside_ns"),
            _ => 0,
        };
        if by_site > blocked + outside || blocked.saturating_sub(by_site) > open {
            problems.push(format!(
                "{name}: blocked {blocked}, sleeps {by_site}, open {open}"
            ));
        }
    }
    for (name, _) in asleep.iter().filter(|(_, blocked)| **blocked > 0) {
        problems.push(format!("sleeps of {name}, which has no row"));
    }
}

/// The sum of these fields of the program's main thread.
fn main_thread(report: &Value, facts: &Facts, fields: &[&str]) -> u64 {
    let mut threads = rows(report, "threads").iter();
    let main = threads.find(|thread| number(thread, "tid") == facts.get("pid"));
    main.map_or(0, |thread| sum_of(thread, fields))
}

/// Whether the kernel has counted a sleep of the main thread as waiting for a CPU, in its own account:
/// since 6.12 a task may stay queued while it sleeps (`sched_delayed`), and when it is moved to another
/// CPU meanwhile, it waits from then on, by that account, until it is woken.
pub fn counts_sleep_as_waiting(report: &Value, facts: &Facts) -> bool {
    let delay = main_thread(report, facts, &["runqueue_ns", "preempted_ns"]);
    let since_main = facts.get("main_delay_ns") - facts.get("main_delay_ns_before_main");
    let more = since_main.saturating_sub(delay);
    let slept = main_thread(report, facts, &["blocked_ns"]);
    more > ms(10) && more < slept && kernel_has("sched_delayed")
}

/// CPU time, time waiting for a CPU and page faults against the kernel's own accounts, as the
/// program read them. Monitoring begins somewhere between the process's birth and the program's
/// `main`, so an account has two readings: all of it, and what came after `main` began.
fn check_against_program(report: &Value, facts: &Facts, problems: &mut Vec<String>) {
    let mut compare = |what: &str, name: &str, measured: u64, slack_least: u64, slack_most: u64| {
        let all = facts.get(name);
        let since_main = all - facts.get(&format!("{name}_before_main"));
        if measured + slack_least < since_main || measured > all + slack_most {
            problems.push(format!(
                "{what}: {measured}, by the program's own account {since_main} to {all}"
            ));
        }
    };
    let slack = |name: &str, least: u64| (facts.get(name) * 3 / 100).max(least * slowness());
    let totals = &report["totals"];

    // The scheduler counts interrupts as the task's time; so both sides do here. What the
    // hypervisor took it leaves out, where the stamps cannot; the kernel tells at each switch, or else in
    // ticks.
    let cpu = sum_of(totals, &["user_cpu_ns", "kernel_cpu_ns", "irq_ns"]);
    let steal = match totals["stolen_ns"].as_u64() {
        Some(stolen) => stolen,
        None => number(report, "steal_ns"),
    };
    // Between two tasks the event comes about a microsecond after the scheduler's own stamp, so
    // that what one account gives to the next task the other gives to the one before; a sleep ends
    // in a switch, and often a preemption is near.
    let sleeps: u64 = rows(report, "sleeps")
        .iter()
        .map(|row| number(row, "count"))
        .sum();
    let most = slack("cpu_ns", ms(2)) + sleeps * SWITCH_SLACK_NS * slowness();
    // A task that is woken and preempts may run from its waking on for the scheduler, which then saves
    // itself a clock reading (`rq_clock_skip_update`): the rest of the interrupt and the switch are CPU
    // time there and waiting for a CPU here, and the other way round for the task that is preempted. The
    // sum of the two is the same. (Two threads preempted 2,000 times in a second by a server's packets:
    // 7 us each time.)
    let displaced = facts.get("preemptions") * PREEMPTION_SLACK_NS * slowness();
    let waited = sum_of(totals, &["runqueue_ns", "preempted_ns"]);
    let shifted = facts.get("cpu_ns").saturating_sub(cpu).min(waited);
    // What the user tap shows as outside its calls may have been spent in any way.
    let outside = number(totals, "outside_ns");
    // Switches that this machine hid: the report tells how much of its CPU time was none.
    let unseen = number(report, "unseen_wait_ns");
    // The program wrote down its account and ended after it had looked.
    let last_words: u64 = rows(report, "syscalls")
        .iter()
        .filter(|row| ["writev", "exit_group"].contains(&text(row, "name")))
        .map(|row| number(row, "cpu_ns"))
        .sum();
    compare(
        "CPU time",
        "cpu_ns",
        cpu,
        most + outside + shifted,
        most + displaced + steal + last_words + unseen,
    );

    let delay = main_thread(report, facts, &["runqueue_ns", "preempted_ns"]);
    // The last words and the exit come after the program looked, and may wait for a CPU too.
    let least = slack("main_delay_ns", ms(2));
    compare(
        "main thread's wait for a CPU",
        "main_delay_ns",
        delay,
        least + outside + unseen + displaced,
        least + ms(20) * slowness() + shifted,
    );

    let all = rows(report, "syscalls").iter();
    let (minor, major) = all.fold((0, 0), |(minor, major), row| {
        (
            minor + number(row, "faults_minor"),
            major + number(row, "faults_major"),
        )
    });
    compare("minor faults", "faults_minor", minor, 0, 40);
    if text(report, "tap") == "kernel" {
        compare("major faults", "faults_major", major, 0, 20);
    }
}
