// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with one known cause each: the report's headline names it.

use std::process::{Command, Output};

use debox_tests::{debox_binary, require_root, Debox, Scratch};
use serde_json::Value;

fn headline(run: &debox_tests::Measured) -> &Value {
    &run.report["headline"]
}

/// The longest share, which is at least this part of the time.
#[track_caller]
fn mostly<'a>(run: &'a debox_tests::Measured, cause: &str, least: f64) -> &'a Value {
    let headline = headline(run);
    let of = headline["of_ns"].as_f64().expect("a headline");
    let first = &headline["shares"][0];
    assert_eq!(first["cause"], cause, "{headline:#}");
    let part = first["ns"].as_f64().expect("a time") / of;
    assert!(part >= least, "{part} of {headline:#}");
    first
}

fn shell(script: &str) -> Debox {
    require_root();
    Debox::command("/bin/sh").args(["-c", script])
}

#[test]
fn a_program_that_computes() {
    let run = shell("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").report();
    let user = run.report["totals"]["user_cpu_ns"].as_u64();
    let waits = &run.report["totals"]["runqueue_ns"];
    // On a machine with other work it may have waited for a CPU for longer.
    if waits.as_u64() < user {
        mostly(&run, "user CPU", 0.4);
    }
}

#[test]
fn a_program_that_tries_again_and_again() {
    let run = Debox::run("timers")
        .args(["nanosleep", "50", "20"])
        .report();
    let timer = mostly(&run, "timer", 0.8);
    assert_eq!(timer["call"], "nanosleep");
    assert!(timer["max_ns"].as_u64() >= Some(50_000_000));
    assert_eq!(headline(&run)["idle_ns"], 0);
}

#[test]
fn a_peer_that_is_slow() {
    let run = Debox::run("timers").args(["poll", "100", "8"]).report();
    let poll = mostly(&run, "poll", 0.8);
    assert_eq!(poll["call"], "poll");
    // Its own request: it serves no one.
    assert_eq!(headline(&run)["is_served"], false);
}

#[test]
fn a_lock_of_another_process() {
    let run = Debox::run("flock_wait").file_arg("locked").args(["300"]);
    let run = run.report();
    let shares = headline(&run)["shares"].as_array().expect("shares");
    let flock = shares.iter().find(|share| share["cause"] == "flock");
    let flock = flock.expect("a share of the lock");
    assert!(flock["ns"].as_u64() >= Some(200_000_000), "{flock}");
    assert_eq!(flock["owner"], "holder");
}

#[test]
fn a_reader_that_is_slow() {
    let run = shell("dd if=/dev/zero bs=64k count=40 2>/dev/null | { sleep 0.6; cat >/dev/null; }");
    let run = run.report();
    let shares = headline(&run)["shares"].as_array().expect("shares");
    let full = shares.iter().find(|share| share["cause"] == "pipe full");
    let full = full.expect("a share of the pipe");
    assert!(full["ns"].as_u64() >= Some(500_000_000), "{full}");
    assert_eq!(full["call"], "write");
}

#[test]
fn a_child_accounts_for_its_parents_wait() {
    let run = shell("sleep 0.5; :").report();
    let timer = mostly(&run, "timer", 0.7);
    assert_eq!(timer["count"], 1);
    let shares = headline(&run)["shares"].as_array().expect("shares");
    assert!(shares.iter().all(|share| share["cause"] != "child process"));
}

/// A recording's report opens with the same: what was computed between calls is in no record, and in the
/// recorder's account.
#[test]
fn a_recording_has_the_headline_of_the_run() {
    require_root();
    let scratch = Scratch::new();
    let computes = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    for (name, command, cause) in [
        ("sleeps", ["/bin/sh", "-c", "sleep 0.6; :"], "timer"),
        ("computes", ["/bin/sh", "-c", computes], "user CPU"),
    ] {
        let file = scratch.file(&format!("{name}.parquet"));
        let path = file.to_str().expect("a path");
        let record = [&["record", "-o", path, "--"][..], &command].concat();
        assert!(debox(&record).status.success(), "{name}");
        let report = debox(&["report", path, "--json=-"]);
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        assert_eq!(report["headline_is_of_run"], true, "{report:#}");
        // Other work on the machine may have taken the CPU for longer.
        let mut shares = report["headline"]["shares"].as_array().expect("it").iter();
        let first = shares.find(|share| share["cause"] != "waiting for a CPU");
        assert_eq!(first.expect("a share")["cause"], cause, "{report:#}");
        let printed = debox(&["report", path]);
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let text = report["headline_text"][0].as_str().expect("a line");
        let begin: String = text.chars().take(40).collect();
        assert!(
            printed
                .lines()
                .nth(1)
                .is_some_and(|line| line.starts_with(&begin)),
            "{printed}"
        );
    }
}

fn debox(arguments: &[&str]) -> Output {
    let command = Command::new(debox_binary()).args(arguments).output();
    command.expect("debox can be executed")
}

/// A wait that goes on when the report is made is in no row of sleeps yet.
#[test]
fn what_has_not_ended_is_the_headline() {
    require_root();
    let mut sleeper = Command::new("/bin/sleep")
        .arg("600")
        .spawn()
        .expect("sleep");
    let pid = sleeper.id().to_string();
    let attached = Debox::bare(["attach", "--for", "1s", "-p", &pid]).report();
    sleeper.kill().expect("own child");
    sleeper.wait().expect("own child");
    let timer = mostly(&attached, "timer", 0.9);
    assert_eq!(timer["call"], "clock_nanosleep");
}
