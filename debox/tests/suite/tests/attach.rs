// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox attach` to a process that hangs says at once what each thread waits for.

use debox_tests::ms;
use debox_tests::slowness;
use debox_tests::Background;
use debox_tests::Debox;
use serde_json::Value;

/// The entry of a thread among the calls in flight.
#[track_caller]
fn in_flight<'a>(report: &'a Value, comm: &str) -> &'a Value {
    let entries = report["in_flight"].as_array().expect("a table");
    match entries.iter().find(|entry| entry["comm"] == comm) {
        Some(entry) => entry,
        None => panic!("nothing of `{comm}` in {entries:#?}"),
    }
}

#[test]
fn a_hanging_process_says_what_it_waits_for() {
    let hung = Background::start("pipe_read", &["thread", "100000"]);
    hung.await_call(libc::SYS_read);
    let run = Debox::bare(["attach", "-p", &hung.pid().to_string(), "--for", "300ms"]).report();

    let reader = in_flight(&run.report, "pipe_read");
    assert_eq!(reader["syscall"], "read", "{reader:#}");
    assert_eq!(reader["label"], "pipe empty", "{reader:#}");
    assert_eq!(reader["class"], "process", "{reader:#}");
    assert_eq!(
        reader["at_least"], true,
        "the call is older than the session: {reader:#}"
    );
    let waited = reader["for_ns"].as_u64().expect("a number");
    assert!((ms(250)..ms(5_000)).contains(&waited), "{reader:#}");

    let writer = in_flight(&run.report, "writer");
    assert_eq!(writer["syscall"], "clock_nanosleep", "{writer:#}");
    assert_eq!(writer["label"], "timer", "{writer:#}");
    assert_eq!(run.report["command"], serde_json::json!([]));
    assert!(run.report["exit_status"].is_null(), "it still runs");
}

#[test]
fn all_threads_of_the_process_are_seen() {
    let busy = Background::start("many_threads", &["16", "100000", "1"]);
    busy.await_call(libc::SYS_futex);
    let run = Debox::bare(["attach", "-p", &busy.pid().to_string(), "--for", "200ms"]).report();
    let workers: Vec<&Value> = run.report["in_flight"]
        .as_array()
        .expect("a table")
        .iter()
        .filter(|entry| entry["comm"] == "worker" && entry["syscall"] == "nanosleep")
        .collect();
    assert_eq!(workers.len(), 16, "{:#}", run.report["in_flight"]);
    assert_eq!(in_flight(&run.report, "many_threads")["label"], "futex");
}

#[test]
fn the_process_goes_on_afterwards() {
    let mut alive = Background::start("pipe_read", &["thread", "100000"]);
    alive.await_call(libc::SYS_read);
    Debox::bare(["attach", "-p", &alive.pid().to_string(), "--for", "100ms"]).report();
    assert!(alive.is_alive());
}

#[test]
fn a_process_that_ends_ends_the_session() {
    // Long enough to be attached to, also by a machine that does other things.
    let lasts = ms(8_000).max(ms(2_500) * slowness());
    let milliseconds = (lasts / ms(1)).to_string();
    let brief = Background::start("timers", &["nanosleep", &milliseconds, "1"]);
    brief.await_call(libc::SYS_nanosleep);
    let run = Debox::bare(["attach", "-p", &brief.pid().to_string(), "--for", "60s"]).report();
    assert!(run.report["duration_ns"].as_u64().expect("a number") < lasts + ms(4_000));
    run.call("nanosleep")
        .calls(1)
        .sleep("timer")
        .waker_interrupt("hardirq");
}
