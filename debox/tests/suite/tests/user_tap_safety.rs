// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user tap in programs that do what is hard on it: children, signal handlers, jumps out of
//! them, ends in the middle of a call, few system calls allowed. The invariants that hold for any
//! report (every report passes them) are half of what is tested here.

use debox_tests::ms;
use debox_tests::Debox;
use debox_tests::Measured;

fn tapped(name: &str, arguments: &[&str]) -> Measured {
    Debox::run(name)
        .args(arguments)
        .options(["--tap", "user"])
        .report()
}

/// However a child is made, its parent's calls are all there; a child's own are, unless it runs in
/// its parent's memory.
#[test]
fn children_of_every_kind() {
    for how in ["fork", "syscall", "bare"] {
        let run = tapped("tap_children", &[how, "30"]);
        run.call("getgid").calls(210);
        run.call("getuid").calls(300);
        assert_eq!(run.threads("tap_children").len(), 31);
    }
    for how in ["vfork", "vfork_exit", "spawn", "shared"] {
        let run = tapped("tap_children", &[how, "30"]);
        run.call("getgid").calls(210).errors(0);
        assert_eq!(run.count_of("getuid"), 0, "{how}");
        run.call("wait4").calls(30).errors(0);
    }
}

/// What a vfork child does before it executes, in its parent's memory, is counted at least, and said;
/// where there is no such child, nothing is.
#[test]
fn calls_without_stamps_are_counted() {
    for (how, calls) in [("vfork_exit", 300), ("vfork", 360), ("shared", 630)] {
        let run = tapped("tap_children", &[how, "30"]);
        assert_eq!(run.report["unstamped"]["calls"], calls, "{how}");
        let words = format!("had to leave out: {calls}, of vfork children");
        assert!(unseen(&run).contains(&words), "{how}: {}", unseen(&run));
    }
    let run = tapped("tap_children", &["fork", "30"]);
    let nothing = serde_json::json!({"calls": 0, "filtered_threads": 0, "filtered": []});
    assert_eq!(run.report["unstamped"], nothing);
    assert!(!unseen(&run).contains("leave out"), "{}", unseen(&run));
    assert!(!unseen(&run).contains("seccomp"), "{}", unseen(&run));
}

fn unseen(run: &Measured) -> String {
    run.report["unseen"].to_string()
}

/// Every handler's call is a call of its own, wherever the signal came in, and no call that one
/// interrupted loses its count or its time.
#[test]
fn handlers_at_five_kilohertz() {
    for stack in ["0", "1"] {
        let run = tapped("tap_handlers", &["busy", "5000", stack]);
        assert!(run.fact("handled") >= 5_000, "{:?}", run.facts);
        run.call("getppid").calls(run.fact("calls")).errors(0);
        run.call("getuid").calls(3 * run.fact("handled"));
        run.call("getgid").calls(2 * run.fact("nested"));
        run.call("tgkill").calls(run.fact("handled"));
        assert_eq!(run.fact("handled"), run.fact("nested"));
    }
}

/// The handlers' sleeps are theirs; the interrupted read is one call all along.
#[test]
fn handlers_inside_a_blocked_call() {
    for stack in ["0", "1"] {
        let run = tapped("tap_handlers", &["blocked", "100", stack]);
        let read = run.call("read").calls(1).errors(0);
        read.between("outside_ns", 1, ms(20));
        let pipe = read.sleep("pipe empty").count(21);
        pipe.between("blocked_ns", ms(40), ms(200));
        run.call("getuid").calls(3 * run.fact("handled"));
    }
}

/// A jump out of the handler ends the call as interrupted, there and then.
#[test]
fn jumps_out_of_a_blocked_call() {
    for stack in ["0", "1"] {
        let run = tapped("tap_handlers", &["left", "20", stack]);
        assert_eq!(run.fact("jumped"), 20);
        run.call("read").calls(21).errors(20).sleep("pipe empty");
        run.call("getuid").calls(20);
    }
}

/// A jump may leave a call at the very instruction that counts it; then it may be in its row and
/// not in its thread's sum. All else is exact.
#[test]
fn jumps_at_five_kilohertz() {
    for stack in ["0", "1"] {
        let debox = Debox::run("tap_handlers").args(["jumps", "1000", stack]);
        let output = debox_tests::Scratch::new();
        let file = output.file("report.json");
        let finished = debox
            .options(["--tap", "user", "--format", "json", "--output"])
            .options([file.as_os_str()])
            .finish()
            .code(0);
        let facts = debox_tests::Facts::from_output(&finished.stdout).expect("facts");
        let text = std::fs::read_to_string(&file).expect("a report");
        let run = Measured::new(serde_json::from_str(&text).expect("JSON"), facts);

        assert!(run.fact("jumped") >= 1_000, "{:?}", run.facts);
        let (calls, jumped) = (run.fact("calls"), run.fact("jumped"));
        run.call("getppid").between("calls", calls, calls + jumped);
        let by_threads = run.sum("threads", "calls");
        let by_calls = run.sum("syscalls", "calls") - run.call("(user)").number("calls");
        assert!(
            by_threads.abs_diff(by_calls) <= 5 + jumped / 50,
            "{by_threads} calls of threads, {by_calls} in rows, {jumped} jumps"
        );
        let (lives, rows) = (
            run.sum("threads", "wall_ns"),
            run.sum("syscalls", "wall_ns"),
        );
        assert!(lives.abs_diff(rows) < ms(1), "{lives}, {rows}");
    }
}

/// Threads that are cancelled or leave inside a call, processes that are killed or leave there: the
/// call counts, with the time it had.
#[test]
fn ends_in_the_middle_of_a_call() {
    for how in ["cancel", "leave", "killed", "exit"] {
        let run = tapped("tap_ends", &[how, "10"]);
        let read = run.call("read").calls(10);
        read.sleep("pipe empty")
            .count(10)
            .class("process")
            .between("blocked_ns", ms(50), ms(200));
        if how != "killed" {
            run.call("getuid").calls(20);
        }
    }
}

/// Threads and children under a filter that kills for the calls which ask for a session; and a
/// program executed under it, which does not ask and so is not seen.
#[test]
fn a_filter_on_system_calls() {
    for set_by in [&["100"][..], &["100", "seccomp"]] {
        let run = tapped("tap_seccomp", set_by);
        run.call("getppid").calls(1_000);
        run.call("getuid").calls(10_000);
        run.call("wait4").calls(6).errors(0);
        let unstamped = &run.report["unstamped"];
        assert_eq!(unstamped["calls"], 0);
        assert_eq!(unstamped["filtered_threads"], 1, "{unstamped}");
        let words = "executed under a seccomp filter of their own: 1.";
        assert!(unseen(&run).contains(words), "{}", unseen(&run));
    }
}

/// More threads at once than a process has room for at first, and children of such a process.
#[test]
fn many_threads_at_once() {
    let run = tapped("many_threads", &["300", "20", "100"]);
    run.call("getppid").calls(30_000);
    run.call("nanosleep").calls(300).sleep("timer").count(300);
    let run = tapped("tap_children", &["together", "100"]);
    run.call("getuid").calls(1_000);
    run.call("wait4").calls(100).errors(0);
}

/// The thread that executes is not its process's first, and takes that one's id.
#[test]
fn a_thread_that_is_not_the_leader_executes() {
    let run = tapped("exec_thread", &[]);
    run.call("getppid").calls(100);
    run.call("getuid").calls(200);
    run.call("getgid").calls(300);
}
