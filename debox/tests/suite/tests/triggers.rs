// SPDX-License-Identifier: MIT OR Apache-2.0
//! Triggers: what holds at a call's end is acted on before the program goes on.

use debox_tests::ms;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

/// What the report says of its only trigger, or of one of them.
#[track_caller]
fn trigger(run: &Measured, index: usize) -> &Value {
    match run.report["triggers"].get(index) {
        Some(trigger) => trigger,
        None => panic!("no trigger {index} in {:#}", run.report["triggers"]),
    }
}

#[track_caller]
fn number(of: &Value, name: &str) -> u64 {
    match of[name].as_u64() {
        Some(number) => number,
        None => panic!("no number `{name}` in {of:#}"),
    }
}

fn calls(of: &Value) -> &[Value] {
    of["calls"].as_array().map_or(&[], Vec::as_slice)
}

/// A run of the truth program under triggers.
fn run(mode: &str, n: u64, triggers: &[&str]) -> Measured {
    let options = triggers.iter().flat_map(|trigger| ["--trigger", trigger]);
    Debox::run("trigger")
        .options(options)
        .args([mode, &n.to_string()])
        .report()
}

#[test]
fn the_signal_arrives_before_the_next_instruction() {
    let slow = "syscall == nanosleep && blocked > 10ms && ret == 0 => signal USR1, limit none";
    let run = run("next", 20, &[slow]);
    assert_eq!(run.fact("at_once"), 20, "before the next instruction");
    assert_eq!(run.fact("handled"), 20);
    assert_eq!(run.fact("foreign"), 0, "by the thread that made the call");
    let trigger = trigger(&run, 0);
    assert_eq!(number(trigger, "fired"), 20, "{trigger:#}");
    for none in [
        "late",
        "suppressed",
        "undecided",
        "signals_failed",
        "unlisted",
    ] {
        assert_eq!(number(trigger, none), 0, "{none} in {trigger:#}");
    }
    assert_eq!(trigger["signal"], "USR1");
    assert_eq!(trigger["limit_per_second"], Value::Null);
}

#[test]
fn what_fired_has_its_parts_and_both_stacks() {
    let run = run("next", 3, &["syscall == nanosleep && longest >= 10ms"]);
    let trigger = trigger(&run, 0);
    assert_eq!(calls(trigger).len(), 3, "{trigger:#}");
    for call in calls(trigger) {
        assert_eq!(call["syscall"], "nanosleep");
        assert_eq!(call["label"], "timer", "{call:#}");
        assert_eq!(call["class"], "idle", "{call:#}");
        assert_eq!(number(call, "sleeps"), 1, "{call:#}");
        let asleep = number(call, "blocked_ns");
        assert!((ms(20)..ms(2_000)).contains(&asleep), "{call:#}");
        assert_eq!(number(call, "longest_ns"), asleep, "{call:#}");
        let parts = ["cpu_ns", "blocked_ns", "runqueue_ns", "preempted_ns"];
        let sum: u64 = parts.iter().map(|part| number(call, part)).sum();
        assert_eq!(sum, number(call, "wall_ns"), "{call:#}");
        let has = |frames: &str, function: &str| {
            let frames = call[frames].as_array().expect("frames");
            let named = |frame: &Value| frame.as_str().is_some_and(|f| f.starts_with(function));
            frames.iter().any(named)
        };
        assert!(
            has("kernel_frames", "hrtimer_nanosleep") || has("kernel_frames", "do_nanosleep"),
            "{call:#}"
        );
        assert!(has("frames", "nap_and_look"), "{call:#}");
        assert!(has("frames", "main"), "{call:#}");
    }
    let at: Vec<u64> = calls(trigger)
        .iter()
        .map(|call| number(call, "at_ns"))
        .collect();
    assert!(at.is_sorted(), "{at:?}");
}

/// A blocked signal stays pending; of an ordinary one there is one at most, real-time ones queue.
#[test]
fn a_blocked_signal_waits_and_an_ordinary_one_is_one() {
    let slow = "syscall == nanosleep && blocked > 1ms => limit none, signal";
    let both = [format!("{slow} USR1"), format!("{slow} RTMIN+3")];
    let run = run("blocked", 4, &[&both[0], &both[1]]);
    assert_eq!(run.fact("pending"), 1);
    assert_eq!(run.fact("handled_while_blocked"), 0);
    assert_eq!(run.fact("handled"), 1, "four firings are one signal");
    assert_eq!(run.fact("real_time"), 4, "these queue");
    for index in 0..2 {
        let trigger = trigger(&run, index);
        assert_eq!(number(trigger, "fired"), 4, "{trigger:#}");
    }
}

/// rt_sigreturn "returns" what the interrupted call did: the trigger must not fire for that again.
#[test]
fn a_handlers_return_fires_nothing() {
    let run = run("badf", 3, &["ret == -9 => signal USR1, limit none"]);
    assert_eq!(run.fact("handled"), 3);
    assert_eq!(number(trigger(&run, 0), "fired"), 3);
    run.call("rt_sigreturn").calls(3);
}

#[test]
fn the_limit_holds_and_what_it_kept_back_is_counted() {
    let run = run("badf", 200, &["error == EBADF => signal USR1, limit 3/s"]);
    let trigger = trigger(&run, 0);
    let (fired, suppressed) = (number(trigger, "fired"), number(trigger, "suppressed"));
    assert_eq!(fired + suppressed, 200, "{trigger:#}");
    // A machine that takes a minute for 200 calls has worse troubles.
    assert!((3..=180).contains(&fired), "{trigger:#}");
    assert_eq!(run.fact("handled"), fired);
}

/// The first piece of the read is interrupted and made again: only the second one is the call.
#[test]
fn a_piece_of_a_restarted_call_fires_nothing() {
    let run = run(
        "pieces",
        0,
        &["syscall == read && blocked > 10ms", "restarted"],
    );
    run.call("read").exactly("restarts", 1);
    let read = trigger(&run, 0);
    assert_eq!(number(read, "fired"), 1, "{read:#}");
    assert_eq!(calls(read)[0]["ret"], 1, "{read:#}");
    assert_eq!(number(trigger(&run, 1), "fired"), 0, "pieces are left out");
}

/// Waits for a pipe are told from waits for time by their label. The first may be decided late.
#[test]
fn labels_tell_a_pipe_from_a_timer() {
    let options = [
        "label == \"pipe empty\" => limit none",
        "syscall == read && label == timer => limit none",
        "syscall == read && blocked > 1ms && label != \"pipe empty\" => limit none",
        "class == idle && syscall == clock_nanosleep => limit none",
    ];
    let options = options.iter().flat_map(|trigger| ["--trigger", trigger]);
    let run = Debox::run("pipe_read")
        .options(options)
        .args(["thread", "20", "10"])
        .report();
    let pipe = trigger(&run, 0);
    assert_eq!(number(pipe, "fired"), 10, "{pipe:#}");
    assert!(number(pipe, "late") < 10, "the answer comes: {pipe:#}");
    assert_eq!(number(pipe, "undecided"), 0, "{pipe:#}");
    for call in calls(pipe) {
        assert_eq!(call["syscall"], "read", "{call:#}");
        assert_eq!(call["label"], "pipe empty", "{call:#}");
    }
    for never in [1, 2] {
        let trigger = trigger(&run, never);
        assert_eq!(number(trigger, "fired"), 0, "{trigger:#}");
    }
    let timer = trigger(&run, 3);
    assert!(number(timer, "fired") >= 10, "{timer:#}");
}

/// Predicates and actions that cannot be are refused before anything runs.
#[test]
fn wrong_triggers_are_refused_with_the_place() {
    for (option, words) in [
        ("bloked > 1ms", &["^^^^^^", "Did you mean `blocked`?"][..]),
        ("syscall == opennat", &["Did you mean `openat`?"]),
        ("wall > 1ms => sing USR1", &["not an action"]),
    ] {
        let run = Debox::bare(["run", "--trigger", option, "--", "/bin/echo", "ran"]);
        let finished = run.finish().code(2).says(words);
        assert_eq!(finished.stdout, "", "{option}");
    }
    for (options, words) in [
        (&["--trigger", "irq > 1ms"][..], "--detail irq"),
        (
            &["--trigger", "label == epoll", "--detail", "basic"],
            "--detail sleeps",
        ),
        (&["--trigger", "wall > 1ms", "--tap", "user"], "kernel tap"),
        (
            &["--trigger", "syscall == (user)"],
            "`(user)` never matches",
        ),
    ] {
        let run = Debox::bare(["run"]).options(options);
        let run = run.options(["--", "/bin/echo", "ran"]);
        let finished = run.finish().code(125).says(&[words]);
        assert_eq!(finished.stdout, "", "{options:?}");
    }
}

/// The same for a process that runs already, and the text for people.
#[test]
fn attach_has_triggers_too() {
    let reads = (20 * debox_tests::slowness()).to_string(); // more than until debox looks
    let busy = debox_tests::Background::start("pipe_read", &["thread", &reads, "200"]);
    busy.await_call(libc::SYS_read);
    let pid = busy.pid().to_string();
    let run = Debox::bare(["attach", "-p", &pid, "--for", "500ms", "--trigger"]);
    let finished = run
        .options(["syscall == read && blocked > 1ms"])
        .finish()
        .code(0);
    finished.says(&[
        "Trigger: syscall == read && blocked > 1ms",
        "Fired for",
        "pipe empty",
    ]);
}
