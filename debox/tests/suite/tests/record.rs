// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox record` and `debox guard` on this kernel. What is in a file, and what servers do under the
//! guard, debox/tests/python looks at with the eyes of others.

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

/// A thread that is woken while it leaves the CPU has not slept: its sleep takes no time, and not a made-up one.
#[test]
fn a_sleep_that_was_none_takes_no_time() {
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let path = file.to_str().expect("a path");
    // Two threads that wake each other as they go to sleep, often enough.
    let program = program("futex_wait");
    let program = program.to_str().expect("a path");
    let done = debox(&["record", "-o", path, "--", program, "turns", "40000"]);
    assert!(done.status.success());
    let history = History::open(&[&file]).expect("a history");
    let calls = history.calls().map(|call| call.expect("a row").1);
    let sleeps: Vec<u64> = calls
        .flat_map(|call| call.sleeps)
        .map(|sleep| sleep.blocked_ns)
        .collect();
    assert!(sleeps.len() > 1_000, "{} sleeps", sleeps.len());
    let of_one = sleeps.iter().filter(|ns| **ns == 1).count();
    assert_eq!(of_one, 0, "of {} sleeps", sleeps.len());
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

/// Rows of a recording with the program's own times; whole and without loss.
#[track_caller]
fn with_user_level(command: &[&str]) -> (Vec<Call>, String) {
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let path = file.to_str().expect("a path");
    let arguments = [&["record", "--user-level", "-o", path, "--"], command].concat();
    let done = debox(&arguments);
    assert!(done.status.success());
    let history = History::open(&[&file]).expect("a history");
    let meta = &history.files[0].meta;
    assert!(meta.complete && meta.user_level, "{meta:?}");
    assert_eq!(meta.lost.records, 0, "{meta:?}");
    let calls = history.calls().map(|call| call.expect("a row").1).collect();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    (calls, printed)
}

/// Python measures its calls by itself: around what the shim measures, which is around the kernel's.
#[test]
fn the_programs_time_lies_between_its_own_clock_and_the_kernels() {
    let program = "\
import os, time
for round in range(20):
    before = time.perf_counter_ns()
    time.sleep(0.01)
    print('clock_nanosleep', time.perf_counter_ns() - before)
for round in range(200):
    before = time.perf_counter_ns()
    os.access('/', os.R_OK)
    print('access', time.perf_counter_ns() - before)
";
    let (calls, printed) = with_user_level(&["python3", "-S", "-c", program]);
    for name in ["clock_nanosleep", "access"] {
        let own: Vec<u64> = printed
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .collect();
        let named: Vec<&Call> = calls.iter().filter(|call| &*call.name == name).collect();
        let last = named.len().checked_sub(own.len()).expect("all are there");
        assert!(!own.is_empty());
        for (own, call) in own.iter().zip(&named[last..]) {
            let user = call.user.unwrap_or_else(|| panic!("{call:#?}"));
            // What the clocks disagree by in such a time, and less than any way into the kernel takes.
            let slack = 200 + call.wall_ns / 10_000;
            assert!(user.wall_ns + slack >= call.wall_ns, "{call:#?}");
            assert!(*own + slack >= user.wall_ns, "{own} around {call:#?}");
            if name == "clock_nanosleep" {
                assert!(call.wall_ns >= ms(9), "{call:#?}");
                assert!(call.budget.blocked_ns <= call.wall_ns, "{call:#?}");
            }
        }
    }
}

/// In tar nearly every call goes through a function of libc of its own.
#[test]
fn most_calls_of_a_real_program_are_measured_in_both() {
    let (calls, _) = with_user_level(&["tar", "cf", "/dev/null", "-P", "/usr/include/linux"]);
    let named = ["newfstatat", "openat", "close", "read", "getdents64"];
    // The loader's are made before there is a shim: as many as the environment has places to look in.
    let stamped = calls.iter().filter(|call| call.user.is_some());
    let first = stamped.map(|call| call.start_ns).min().expect("some are");
    let calls = || calls.iter().filter(|call| call.start_ns >= first);
    for name in named {
        let all: Vec<&Call> = calls().filter(|call| &*call.name == name).collect();
        let measured = all.iter().filter(|call| call.user.is_some()).count();
        println!("{name}: {measured} of {}", all.len());
        assert!(
            name == "getdents64" || measured + 120 >= all.len(),
            "{name}"
        );
        for call in all {
            let Some(user) = call.user else { continue };
            let slack = 200 + call.wall_ns / 10_000;
            assert!(user.wall_ns + slack >= call.wall_ns, "{call:#?}");
            let outside = user.wall_ns.saturating_sub(call.wall_ns) + slack;
            assert!(user.away_ns <= outside, "{call:#?}");
        }
    }
}

/// A read is interrupted and restarted again and again, and each time a handler makes calls of its own:
/// the program sees one long read, and what else it was is told.
#[test]
fn what_handlers_do_is_in_the_programs_time_and_not_in_the_calls() {
    let handlers = program("tap_handlers");
    let handlers = handlers.to_str().expect("a path");
    let (calls, _) = with_user_level(&[handlers, "blocked", "300", "0"]);
    let measured = calls.iter().filter_map(|call| Some((call, call.user?)));
    let read = measured.filter(|(call, _)| &*call.name == "read");
    let (call, user) = read
        .max_by_key(|(_, user)| user.wall_ns)
        .expect("a read that was measured");
    println!("{call:#?}");
    assert!(user.wall_ns >= ms(290), "{user:?}");
    assert!(!call.restarted, "{call:#?}");
    // Twenty pieces of the read were restarted, and as many handlers slept for a millisecond each.
    let outside = user.wall_ns - call.wall_ns;
    let enough = user.calls_ns >= ms(20) && user.calls_ns >= outside / 2;
    assert!(enough && user.calls_ns <= outside, "{user:?}");
    // And what they called was measured by itself.
    let inner = calls.iter().filter(|call| &*call.name == "getuid");
    let inner: Vec<&Call> = inner.collect();
    assert!(inner.len() >= 60, "{}", inner.len());
    let measured = inner.iter().filter(|call| call.user.is_some()).count();
    assert!(measured >= 58, "{measured} of {}", inner.len());
}

#[test]
fn programs_without_glibcs_functions_are_refused_in_words() {
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let path = file.to_str().expect("a path");
    let setuid = [
        "record",
        "--user-level",
        "-o",
        path,
        "--",
        "su",
        "--version",
    ];
    let done = debox(&setuid);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(125), "{said}");
    assert!(said.contains("without --user-level"), "{said}");
    let done = debox(&["record", "--user-level", "-o", path, "-p", "1"]);
    assert_eq!(done.status.code(), Some(2));
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

#[test]
fn a_result_that_goes_to_a_file_goes_nowhere_else() {
    let scratch = Scratch::new();
    let file = scratch.file("guard.txt");
    let path = file.to_str().expect("a path");
    let done = debox(&["guard", "-o", path, "--", "true"]);
    assert_eq!(done.status.code(), Some(3), "no loop was seen");
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    let text = std::fs::read_to_string(&file).expect("a result");
    assert!(text.contains("loop"), "{text}");
}

#[test]
fn tables_that_go_to_no_terminal_have_the_width_that_columns_says() {
    require_root();
    let width_of = |columns: &str| {
        let done = Command::new(debox_binary())
            .args(["run", "--", "true"])
            .env("COLUMNS", columns)
            .output()
            .expect("debox can be executed");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert!(width_of("70").contains("left out to fit 70 columns"));
    assert!(!width_of("").contains("70 columns"));
    assert!(!width_of("1000").contains("left out to fit"));
}
