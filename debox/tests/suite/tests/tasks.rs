// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads and processes in every way they begin, replace each other and end.

use debox_tests::ms;
use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Measured;

#[test]
fn sixty_four_threads_sleep_at_once() {
    let run = Debox::run("many_threads")
        .args(["64", "100", "100"])
        .report();
    run.call("getppid").calls(6_400);
    run.call("nanosleep").calls(64);
    match run.lost("probe_misses") {
        0 => check_sleeps_of_64(&run),
        // What was slept in a call whose begin was skipped is not the call's.
        missed => skipped(
            "sixty_four_threads_sleep_at_once",
            &format!("the calls' sleeps: the kernel has skipped up to {missed} probes"),
        ),
    }
    assert_eq!(run.threads("worker").len(), 64);
    for worker in run.threads("worker") {
        let asleep = worker["blocked_ns"].as_u64().expect("a number");
        assert!((ms(99)..ms(400)).contains(&asleep), "{worker:#}");
    }
}

fn check_sleeps_of_64(run: &Measured) {
    let sleep = run.call("nanosleep").sleep("timer").class("idle").count(64);
    sleep
        .blocked_as_known()
        .between("blocked_ns", ms(6_400) - ms(7), ms(9_000));
}

#[test]
fn children_are_followed_and_counted() {
    let run = Debox::run("children").args(["many", "50"]).report();
    run.call("getuid").calls(500);
    run.call("wait4").calls(50).errors(0);
    assert_eq!(run.threads("children").len(), 51);
    let children: Vec<u64> = run
        .threads("children")
        .iter()
        .filter(|thread| thread["tid"].as_u64() != Some(run.fact("pid")))
        .map(|thread| thread["calls"].as_u64().expect("a number"))
        .collect();
    // A fork child makes its ten calls; that fork returns in it is no call of its own.
    assert!(
        children.iter().all(|calls| (10..=20).contains(calls)),
        "{children:?}"
    );
}

#[test]
fn a_thread_without_any_library_is_followed() {
    let run = Debox::run("raw_clone").report();
    run.call("clone").calls(1).errors(0);
    run.call("getuid").calls(500).errors(0);
    run.call("getppid").calls(1_000).errors(0);
    run.call("nanosleep")
        .calls(1)
        .sleep("timer")
        .count(1)
        .between("blocked_ns", ms(49), ms(200));
    run.call("futex")
        .sleep("futex")
        .class("lock")
        .between("blocked_ns", ms(40), ms(200));
    assert_eq!(run.threads("raw_clone").len(), 2);
}

#[test]
fn a_thread_that_is_not_the_leader_executes() {
    let run = Debox::run("exec_thread").report();
    run.call("getppid").calls(100);
    run.call("getuid").calls(200);
    run.call("getgid").calls(300);
    run.call("execve").calls(2).errors(0);
}
