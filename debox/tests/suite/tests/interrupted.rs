// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that signals stop, interrupt and restart.

use debox_tests::clock_slack_ns;
use debox_tests::ms;
use debox_tests::Debox;

/// The kernel ends the read with -512, stops the child on its way out, and enters the read anew
/// afterwards: two pieces of one call. Being stopped is no part of either.
#[test]
fn a_stop_inside_read_splits_it() {
    let run = Debox::run("signals").args(["stop", "100"]).report();
    let least = run.fact("least_ns") - clock_slack_ns();
    let most = run.fact("most_ns") - run.fact("stopped_ns") + clock_slack_ns();
    let read = run.call("read").exactly("restarts", 1).errors(0);
    let pipe = read.sleep("pipe empty").class("process").count(2);
    assert_eq!(pipe.woken_by("task", Some("signals")), 2, "{pipe:#?}");
    pipe.between("blocked_ns", least, most);
    let stop = run
        .call("(user)")
        .sleep("stopped by a signal")
        .class("process")
        .count(1);
    stop.between(
        "blocked_ns",
        run.fact("stopped_ns") - ms(1),
        run.fact("stopped_ns") + ms(20),
    );
}

/// nanosleep returns -516 to the kernel's own exit path, which makes EINTR of it once it knows that
/// a handler runs: to the probes it is a piece that was not taken up again.
#[test]
fn a_handler_interrupts_nanosleep() {
    let run = Debox::run("signals").args(["eintr", "100"]).report();
    assert_eq!(run.fact("handled"), 1);
    let sleep = run.call("nanosleep").calls(1);
    let ended_early = sleep.number("errors") + sleep.number("restarts");
    assert_eq!(ended_early, 1, "{:#}", run.report["syscalls"]);
    sleep
        .sleep("timer")
        .count(1)
        .blocked_as_known()
        .waker_task("interrupter");
    run.call("getppid").calls(7);
    run.call("rt_sigreturn")
        .calls(1)
        .errors(0)
        .exactly("restarts", 0);
}

/// With SA_RESTART the read goes on after the handler, whose calls are calls of their own.
#[test]
fn a_handler_interrupts_read_which_restarts() {
    let run = Debox::run("signals").args(["restart", "100"]).report();
    assert_eq!(run.fact("handled"), 1);
    let read = run.call("read").exactly("restarts", 1).errors(0);
    let pipe = read
        .sleep("pipe empty")
        .class("process")
        .count(2)
        .blocked_as_known();
    assert_eq!(pipe.woken_by("task", Some("interrupter")), 2, "{pipe:#?}");
    run.call("getppid").calls(7);
    run.call("rt_sigreturn")
        .calls(1)
        .errors(0)
        .exactly("restarts", 0);
}
