// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that wait for each other are named, with their locks and lines, however late debox comes.

use std::process::Command;
use std::time::Duration;

use debox_tests::debox_binary;
use debox_tests::kernel_has;
use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::Background;
use debox_tests::Debox;
use debox_tests::Scratch;
use serde_json::Value;

/// Waits until so many tasks of the process and its children are asleep in a call of this number.
#[track_caller]
fn await_stuck(pid: u32, call: libc::c_long, count: usize) {
    let is_in = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("syscall")).unwrap_or_default();
        text.split(' ').next() == Some(&call.to_string())
    };
    let tasks = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        tasks.map(|task| task.path()).collect::<Vec<_>>()
    };
    let children = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    let stuck = wait_for(Duration::from_secs(20), || {
        let mut all = tasks(pid);
        all.extend(children(pid).into_iter().flat_map(tasks));
        all.into_iter().filter(|path| is_in(path.clone())).count() == count
    });
    assert!(
        stuck,
        "process {pid} never had {count} tasks in call {call}"
    );
}

/// The only deadlock of a report.
#[track_caller]
fn deadlock(report: &Value) -> &Value {
    let found = report["deadlocks"].as_array().expect("a list");
    assert_eq!(found.len(), 1, "{found:#?}");
    &found[0]
}

/// A field of all its waits.
fn fields<'a>(deadlock: &'a Value, name: &str) -> Vec<&'a str> {
    let waits = deadlock["waits"].as_array().expect("a list");
    waits
        .iter()
        .map(|wait| wait[name].as_str().unwrap_or_default())
        .collect()
}

#[track_caller]
fn attached(pid: u32) -> Value {
    let run = Debox::bare(["attach", "-p", &pid.to_string(), "--for", "600ms"]);
    run.report().report
}

/// Starts the program and attaches to it when it is stuck.
#[track_caller]
fn stuck(arguments: &[&str], call: libc::c_long, count: usize) -> Value {
    let program = Background::start("deadlock", arguments);
    await_stuck(program.pid(), call, count);
    attached(program.pid())
}

#[test]
fn two_mutexes_of_a_running_process() {
    let report = stuck(&["two"], libc::SYS_futex, 3);
    let found = deadlock(&report);
    assert_eq!(fields(found, "lock"), ["mutex", "mutex"], "{found:#}");
    let mut names = fields(found, "name");
    names.sort_unstable();
    assert!(names[0].starts_with("first (") && names[1].starts_with("second ("));
    for (comm, caller) in fields(found, "comm").iter().zip(fields(found, "caller")) {
        let function = format!("wait_in_{comm}");
        assert!(caller.starts_with(&function), "{caller}: {found:#}");
        assert!(caller.contains("deadlock.c:"), "{caller}");
    }
    // The main thread waits for one of them.
    assert_eq!(found["behind"], 1, "{found:#}");
    assert_eq!(found["may_end"], false);
    // Each call in flight says who holds what it waits for.
    for call in report["in_flight"].as_array().expect("a list") {
        if call["comm"] == "one" {
            assert_eq!(call["owner"]["comm"], "two", "{call:#}");
            assert_eq!(call["owner"]["certainty"], "exact", "{call:#}");
            assert_eq!(call["owner"]["doing"], "futex", "{call:#}");
        }
    }
}

#[test]
fn circles_of_three_and_of_one_and_with_a_join() {
    let report = stuck(&["three"], libc::SYS_futex, 4);
    assert_eq!(fields(deadlock(&report), "comm").len(), 3);
    let report = stuck(&["self"], libc::SYS_futex, 1);
    let found = deadlock(&report);
    assert_eq!(fields(found, "comm"), ["deadlock"]);
    assert!(fields(found, "name")[0].starts_with("first ("), "{found:#}");
    assert!(fields(found, "caller")[0].starts_with("main"), "{found:#}");
    let report = stuck(&["join"], libc::SYS_futex, 2);
    let mut locks = fields(deadlock(&report), "lock");
    locks.sort_unstable();
    assert_eq!(locks, ["end of a thread", "mutex"]);
}

#[test]
fn processes_wait_for_each_other() {
    let report = stuck(&["shared"], libc::SYS_futex, 2);
    let found = deadlock(&report);
    assert_eq!(fields(found, "lock"), ["mutex", "mutex"], "{found:#}");
    assert_ne!(found["waits"][0]["pid"], found["waits"][1]["pid"]);
    let scratch = Scratch::new();
    let file = scratch.file("lock");
    let path = file.to_str().expect("a path");
    let report = stuck(&["flock", path], libc::SYS_flock, 2);
    let found = deadlock(&report);
    assert_eq!(fields(found, "lock"), ["flock", "flock"], "{found:#}");
    let mut names = fields(found, "name");
    names.sort_unstable();
    assert_eq!(names, [path.to_string(), format!("{path}.other")]);
}

#[test]
fn a_run_that_is_ended_says_so_first() {
    let run = Debox::run("deadlock").args(["two"]).spawn();
    let child = run.await_child("deadlock");
    await_stuck(child as u32, libc::SYS_futex, 3);
    std::thread::sleep(Duration::from_secs(3));
    run.signal(libc::SIGTERM);
    let done = run.finish();
    let first = done.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("deadlock of 2 threads"), "{done}");
    assert!(done.stderr.contains("wait_in_one"), "{done}");
}

#[test]
fn a_recording_keeps_it() {
    let scratch = Scratch::new();
    let file = scratch.file("stuck.parquet");
    let path = file.to_str().expect("a path");
    let program = Background::start("deadlock", &["two"]);
    await_stuck(program.pid(), libc::SYS_futex, 3);
    let pid = program.pid().to_string();
    let debox = |arguments: &[&str]| {
        let done = Command::new(debox_binary()).args(arguments).output();
        let done = done.expect("debox can be executed");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    debox(&["record", "-o", path, "-p", &pid, "--for", "600ms"]);
    let report: Value = serde_json::from_str(&debox(&["report", path, "--json=-"])).unwrap();
    assert_eq!(fields(deadlock(&report), "comm").len(), 2);
    let first = &report["findings"][0];
    assert_eq!(first["kind"], "deadlock", "{first:#}");
    let text = first["text"].as_str().expect("text");
    assert!(
        text.contains("wait_in_one") && text.contains("held by two ("),
        "{text}"
    );
    for thread in report["threads"].as_array().expect("threads") {
        assert_eq!(thread["at_rest"], false, "{thread:#}");
        let is_stuck = thread["comm"] != "deadlock";
        assert_eq!(thread["rest"] == "stuck", is_stuck, "{thread:#}");
    }
}

/// It waited for 300 ms for what a thread held: that is no rest.
#[test]
fn a_reader_behind_a_writer_knows_the_writer() {
    let run = Debox::run("deadlock").args(["rwlock", "300"]).report();
    let sleeps = run.report["sleeps"].as_array().expect("a list");
    let owners = sleeps.iter().flat_map(|sleep| sleep["owners"].as_array());
    let known: Vec<&Value> = owners
        .flatten()
        .filter(|owner| owner["certainty"] == "exact")
        .collect();
    assert_eq!(known.len(), 1, "{sleeps:#?}");
    assert_eq!(known[0]["comm"], "deadlock", "{sleeps:#?}");
    assert!(known[0]["blocked_ns"].as_u64() >= Some(250_000_000));
}

/// The wait began before debox came, and its holder was read then.
#[test]
fn a_wait_that_ends_later_has_its_owner() {
    if !kernel_has("bpf_task_from_pid") {
        let reason = "this kernel does not let probes find tasks by their numbers (Linux 6.2)";
        return skipped("a_wait_that_ends_later_has_its_owner", reason);
    }
    // Emulated machines take seconds to load the probes; it ends before the limit of `attach` below.
    let wait_ms = (6000 * slowness().min(4)).to_string();
    let program = Background::start("deadlock", &["rwlock", &wait_ms]);
    await_stuck(program.pid(), libc::SYS_futex, 1);
    let pid = program.pid().to_string();
    let run = Debox::bare(["attach", "-p", &pid, "--for", "40s"]).report();
    let sleeps = run.report["sleeps"].as_array().expect("a list");
    let owners = sleeps.iter().flat_map(|sleep| sleep["owners"].as_array());
    let mut known = owners.flatten();
    let is_writer = |owner: &Value| {
        owner["certainty"] == "exact" && owner["tid"] == program.pid() && owner["doing"] == "timer"
    };
    assert!(known.any(is_writer), "{sleeps:#?}");
}
