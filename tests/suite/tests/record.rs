// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox record` and `debox guard` on this kernel. What is in a file, and what servers do under the
//! guard, tests/python looks at with the eyes of others.

use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use debox::history::Call;
use debox_history::History;
use debox_tests::debox_binary;
use debox_tests::ms;
use debox_tests::program;
use debox_tests::require_root;
use debox_tests::Scratch;
use debox_tests::HIDDEN_SWITCHES_ATTEMPTS;

/// Runs debox with these arguments.
#[track_caller]
fn debox(arguments: &[&str]) -> Output {
    require_root();
    let done = Command::new(debox_binary())
        .args(arguments)
        .output()
        .expect("debox can be executed");
    println!("{}", String::from_utf8_lossy(&done.stderr));
    done
}

#[test]
fn every_call_and_sleep_is_kept() {
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let path = file.to_str().expect("a path");
    let reader = program("pipe_read");
    let reader = reader.to_str().expect("a path");
    let done = debox(&["record", "-o", path, "--", reader, "thread", "50", "4"]);
    assert!(done.status.success());

    let history = History::open(&[&file]).expect("a history");
    let meta = &history.files[0].meta;
    assert!(meta.complete && meta.lost.records == 0, "{meta:?}");
    let calls: Vec<Call> = history.calls().map(|call| call.expect("a row").1).collect();
    for call in &calls {
        let budget = &call.budget;
        let parts = budget.cpu_ns + budget.blocked_ns + budget.runqueue_ns + budget.preempted_ns;
        assert_eq!(parts, call.wall_ns, "{call:#?}");
        if call.sleeps_left_out == 0 {
            let asleep: u64 = call.sleeps.iter().map(|sleep| sleep.blocked_ns).sum();
            assert_eq!(asleep, budget.blocked_ns, "{call:#?}");
        }
    }
    let waits: Vec<&Call> = calls
        .iter()
        .filter(|call| &*call.name == "read" && call.budget.blocked_ns > ms(40))
        .collect();
    assert_eq!(waits.len(), 4, "{waits:#?}");
    for call in waits {
        let sleep = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
        let sleep = sleep.expect("a sleep");
        assert_eq!(&*sleep.label, "pipe empty");
        assert_eq!(sleep.waker_comm.as_deref(), Some("writer"));
        assert!(call
            .stack
            .as_deref()
            .is_some_and(|stack| stack.contains("main")));
    }
    // Each thread's calls are numbered without a gap.
    let mut ordinals: Vec<(u32, u64)> = calls
        .iter()
        .filter(|call| call.number >= 0)
        .map(|call| (call.tid, call.ordinal))
        .collect();
    ordinals.sort_unstable();
    for pair in ordinals.windows(2) {
        let follows = (pair[0].0, pair[0].1 + 1) == pair[1];
        assert!(
            follows || (pair[0].0 != pair[1].0 && pair[1].1 == 1),
            "{pair:?}"
        );
    }
}

#[test]
fn a_call_that_hangs_is_in_the_recording() {
    let scratch = Scratch::new();
    let file = scratch.file("hangs.parquet");
    let path = file.to_str().expect("a path");
    let mut hangs = Command::new("sh")
        .args(["-c", "read line"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh can be executed");
    let pid = hangs.id().to_string();
    // It has come to the call.
    let syscall = format!("/proc/{pid}/syscall");
    while !std::fs::read_to_string(&syscall).is_ok_and(|text| text.starts_with("0 0x0 ")) {
        std::thread::yield_now();
    }
    let done = debox(&["record", "-o", path, "-p", &pid, "--for", "300ms"]);
    assert!(done.status.success());
    let report = Command::new(debox_binary())
        .args(["report", path])
        .output()
        .expect("debox can be executed");
    drop(hangs.stdin.take());
    hangs.wait().expect("it ends");

    let history = History::open(&[&file]).expect("a history");
    let calls: Vec<Call> = history.calls().map(|call| call.expect("a row").1).collect();
    let [call] = calls.as_slice() else {
        panic!("{calls:#?}");
    };
    assert_eq!((&*call.name, call.args[0]), ("read", 0));
    assert!(call.in_flight && call.partial, "{call:#?}");
    assert!(call.wall_ns >= ms(300), "{call:#?}");
    let budget = &call.budget;
    let parts = budget.cpu_ns + budget.blocked_ns + budget.runqueue_ns + budget.preempted_ns;
    assert_eq!(parts, call.wall_ns);
    let [sleep] = call.sleeps.as_slice() else {
        panic!("{call:#?}");
    };
    assert_eq!(sleep.blocked_ns, budget.blocked_ns);
    assert_eq!((&*sleep.label, &*sleep.waker_kind), ("pipe empty", "none"));
    assert_eq!(sleep.resource_kind.as_deref(), Some("pipe"));
    let stack = call.stack.as_deref().expect("a stack");
    assert!(stack.contains("read"), "{stack}");
    let said = String::from_utf8_lossy(&report.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains(&format!("The main thread of sh ({pid}) was still in read")),
        "{said}"
    );
    assert!(said.contains("waiting for pipe empty"), "{said}");
}

#[test]
fn a_loop_that_blocks_is_told_from_one_that_does_not() {
    let sleeper = ["--thread", "sleep", "--max-blocked", "20ms"];
    let blocks = [&["guard"], &sleeper[..], &["--", "sleep", "0.1"]].concat();
    // A virtual machine may hide the switch that ends a sleep, which then has no label: not each time.
    let knows_why = (0..HIDDEN_SWITCHES_ATTEMPTS).any(|_| {
        let done = debox(&blocks);
        assert_eq!(done.status.code(), Some(3));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains("in clock_nanosleep ("), "{said}");
        said.contains("in clock_nanosleep (timer)")
    });
    assert!(knows_why, "no sleep has a label");

    let allowed = [&["guard"], &sleeper[..], &["--allow", "clock_nanosleep"]].concat();
    let done = debox(&[&allowed[..], &["--", "sleep", "0.1"]].concat());
    assert_eq!(done.status.code(), Some(0));
}
