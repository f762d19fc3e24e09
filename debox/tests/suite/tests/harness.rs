// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness itself, on reports made by hand: it must accept a report that adds up and see each
//! way in which one may not.

use debox_tests::check_report;
use debox_tests::ms;
use debox_tests::Facts;
use debox_tests::Measured;
use serde_json::json;
use serde_json::Value;

/// A thread that ran 3 ms and slept 200 ms in one read.
fn report() -> Value {
    let call = |name: &str, calls: u64, cpu: u64, blocked: u64| {
        json!({
            "name": name, "calls": calls, "errors": 0, "restarts": 0,
            "wall_ns": cpu + blocked, "cpu_ns": cpu, "blocked_ns": blocked,
            "runqueue_ns": 0, "preempted_ns": 0, "irq_ns": null, "outside_ns": null,
            "faults_minor": 10, "faults_major": 0,
            "p50_ns": if calls > 0 { json!(cpu + blocked) } else { Value::Null },
            "p99_ns": if calls > 0 { json!(cpu + blocked) } else { Value::Null },
            "max_ns": cpu + blocked, "spin_ns": null, "read_bytes": null, "write_bytes": null,
        })
    };
    let life = json!({
        "wall_ns": ms(203), "user_cpu_ns": ms(2), "kernel_cpu_ns": ms(1), "blocked_ns": ms(200),
        "runqueue_ns": 0, "preempted_ns": 0, "irq_ns": null, "outside_ns": null, "stolen_ns": null,
    });
    let mut thread = life.clone();
    for (field, value) in [
        ("pid", json!(42)),
        ("tid", json!(42)),
        ("comm", json!("reader")),
        ("calls", json!(1)),
    ] {
        thread[field] = value;
    }
    json!({
        "schema": "debox.report/1", "command": ["reader"], "kernel": "6.1.0", "tap": "kernel",
        "detail": ["basic", "sleeps"], "duration_ns": ms(210), "exit_status": 0, "totals": life,
        "incomplete": null,
        "headline": null,
        "steal_ns": null, "unseen_wait_ns": 0, "slow_ns": null,
        "lost": {
            "records": 0, "sleeps": 0, "stacks": 0, "threads": 0, "rows": 0, "probe_misses": 0,
            "refused": 0,
        },
        "syscalls": [call("read", 1, ms(1), ms(200)), call("(user)", 0, ms(2), 0)],
        "sleeps": [{
            "syscall": "read", "label": "pipe empty", "class": "process",
            "site": "anon_pipe_read+0x1d4", "count": 1, "blocked_ns": ms(200), "max_ns": ms(200),
            "frames": ["anon_pipe_read+0x1d4"],
            "wakers": [{"kind": "task", "comm": "writer", "tid": 43, "count": 1}],
            "waiters_entry_max": null, "waiters_exit_max": null, "waiters_scope": null,
            "resource": null, "resources": [], "owners": [], "call_sites": [],
        }],
        "chains": [], "cpu_waits": [], "spins": [], "samples": null, "hints": [], "deadlocks": [], "processes": [], "live_on": [], "trace": null, "triggers": [], "call_sites": [], "threads": [thread], "in_flight": [], "untapped": [], "unstamped": null, "unseen": [],
    })
}

const FACTS: &str = r#"other output
{"least_ns":199900000,"most_ns":200500000,"pid":42,"faults_minor_before_main":5,
"faults_minor":22,"faults_major_before_main":0,"faults_major":0,"main_delay_ns_before_main":50,
"main_delay_ns":100,"preemptions":3,"cpu_ns_before_main":400000,"cpu_ns":3100000}"#;

fn facts() -> Facts {
    Facts::from_output(&FACTS.replace(",\n", ",")).expect("the facts are the last line")
}

/// Asserts that a report, changed at one place, is refused in words that contain `expected`.
#[track_caller]
fn refused(pointer: &str, value: Value, expected: &str) {
    let mut changed = report();
    *changed.pointer_mut(pointer).expect("the place exists") = value;
    let problems = check_report(&changed, Some(&facts()));
    let found = problems.iter().any(|problem| problem.contains(expected));
    assert!(
        found,
        "{pointer} changed: expected `{expected}` in {problems:#?}"
    );
}

#[test]
fn a_report_that_adds_up_is_accepted() {
    assert_eq!(
        check_report(&report(), Some(&facts())),
        Vec::<String>::new()
    );
}

#[test]
fn one_nanosecond_too_many_is_refused() {
    refused("/syscalls/0/cpu_ns", json!(ms(1) + 1), "read: parts are");
    refused("/threads/0/runqueue_ns", json!(1), "thread 42");
    refused(
        "/totals/user_cpu_ns",
        json!(ms(2) + 1),
        "totals.user_cpu_ns",
    );
    refused(
        "/sleeps/0/blocked_ns",
        json!(ms(200) - 1),
        "blocked 200000000, sleeps 199999999",
    );
}

#[test]
fn figures_that_do_not_fit_each_other_are_refused() {
    refused("/lost/stacks", json!(3), "3 stacks lost");
    refused("/syscalls/0/errors", json!(2), "more errors");
    refused("/syscalls/0/max_ns", json!(ms(202)), "longest is");
    refused("/syscalls/0/max_ns", json!(ms(100)), "cannot take");
    refused("/syscalls/0/p99_ns", json!(ms(300)), "percentiles");
    refused(
        "/sleeps/0/wakers/0/count",
        json!(2),
        "slept 1 times, woken 2 times",
    );
    refused(
        "/sleeps/0/wakers/0/kind",
        json!("softirq"),
        "an interrupt none",
    );
    refused(
        "/sleeps/0/syscall",
        json!("write"),
        "sleeps of write, which has no row",
    );
    refused("/threads/0/calls", json!(2), "threads made 2 calls");
    refused("/unseen_wait_ns", json!(ms(4)), "cannot be inside");
    refused("/totals/stolen_ns", json!(ms(4)), "the hypervisor took");
    refused("/threads/0/stolen_ns", json!(ms(4)), "the hypervisor took");
    refused(
        "/duration_ns",
        json!(ms(100)),
        "lived longer than the session",
    );
}

#[test]
fn another_shape_is_refused() {
    refused("/syscalls/0/cpu_ns", json!("1 ms"), "schema:");
    refused("/schema", json!("debox.report/2"), "schema:");
}

#[test]
fn the_programs_own_account_counts() {
    let mut changed = report();
    changed["syscalls"][0]["faults_minor"] = json!(0);
    let problems = check_report(&changed, Some(&facts()));
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("minor faults")),
        "{problems:?}"
    );
}

#[test]
fn chains_read_like_what_they_check() {
    let run = Measured::new(report(), facts());
    run.call("read")
        .calls(1)
        .errors(0)
        .blocked_as_known()
        .sleep("pipe empty")
        .class("process")
        .count(1)
        .blocked_as_known()
        .waker_task("writer")
        .waker_tid(43)
        .site_in(&["anon_pipe_read", "pipe_read"]);
    assert_eq!(run.threads("reader").len(), 1);
    assert_eq!(run.count_of("write"), 0);
}

#[test]
#[should_panic(expected = "not every waker is the task `someone`")]
fn a_wrong_waker_is_seen() {
    let run = Measured::new(report(), facts());
    run.call("read").sleep("pipe empty").waker_task("someone");
}

#[test]
#[should_panic(expected = "no sleep `inode lock`")]
fn a_missing_label_is_seen() {
    let run = Measured::new(report(), facts());
    run.call("read").sleep("inode lock");
}
