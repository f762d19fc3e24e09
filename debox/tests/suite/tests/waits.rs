// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known waits between threads and processes: label, class, count, time, and who ended them.

use debox_tests::ms;
use debox_tests::slowness;
use debox_tests::Background;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

#[test]
fn an_empty_pipe_is_filled_by_a_thread() {
    let run = Debox::run("pipe_read").args(["thread", "200"]).report();
    let read = run
        .call("read")
        .sleep("pipe empty")
        .class("process")
        .count(1);
    read.blocked_as_known()
        .between("blocked_ns", ms(200), ms(400))
        .waker_task("writer");
}

#[test]
fn an_empty_pipe_is_filled_by_a_child() {
    let run = Debox::run("pipe_read").args(["child", "100", "5"]).report();
    let read = run
        .call("read")
        .sleep("pipe empty")
        .class("process")
        .count(5);
    read.blocked_as_known()
        .waker_task("writer")
        .waker_tid(run.fact("writer_tid"));
}

#[test]
fn a_full_pipe_is_emptied() {
    let run = Debox::run("pipe_full").args(["150"]).report();
    let write = run
        .call("write")
        .errors(0)
        .sleep("pipe full")
        .class("process")
        .count(1);
    write.blocked_as_known().waker_task("reader");
}

#[test]
fn a_unix_socket_is_connected_to() {
    let run = Debox::run("socket_wait")
        .args(["unix", "accept", "100"])
        .report();
    let accept = run
        .call("accept4")
        .calls(1)
        .sleep("accept")
        .class("idle")
        .count(1);
    accept
        .blocked_as_known()
        .waker_task("peer")
        .called_from("main");
}

#[test]
fn a_unix_socket_receives() {
    let run = Debox::run("socket_wait")
        .args(["unix", "recv", "100"])
        .report();
    let recv = run
        .call("recvfrom")
        .calls(1)
        .sleep("Unix socket empty")
        .class("process")
        .count(1);
    recv.blocked_as_known().waker_task("peer");
}

#[test]
fn a_unix_socket_is_full() {
    let run = Debox::run("socket_wait")
        .args(["unix", "send", "100"])
        .report();
    let send = run
        .call("sendto")
        .calls(1)
        .sleep("Unix socket full")
        .class("process");
    send.blocked_as_known().waker_task("peer");
}

/// The loopback device hands the packet over in a soft interrupt: the sender, on whose CPU it runs,
/// is a bystander then.
#[test]
fn a_tcp_socket_is_connected_to() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "accept", "100"])
        .report();
    let accept = run
        .call("accept4")
        .calls(1)
        .sleep("accept")
        .class("idle")
        .count(1);
    accept.blocked_as_known().waker_interrupt("softirq");
}

/// Of one descriptor alone, poll says what it is and who is at its other end.
#[test]
fn a_poll_names_its_one_descriptor() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "poll", "100"])
        .report();
    let poll = run
        .call("poll")
        .calls(1)
        .sleep("poll")
        .class("idle")
        .count(1);
    poll.blocked_as_known();
    assert_is_for_connection(&run, "poll");
}

/// The sleep in the call was for the connection that was accepted.
#[track_caller]
fn assert_is_for_connection(run: &Measured, call: &str) {
    let sleeps = run.report["sleeps"].as_array().expect("a list");
    let is_its_own = |sleep: &&Value| sleep["syscall"].as_str().unwrap().ends_with(call);
    let resource = &sleeps.iter().find(is_its_own).expect("the sleep")["resource"];
    assert_eq!(resource["kind"], "socket", "{resource:#}");
    let name = resource["name"].as_str().expect("a name");
    let local = format!("tcp 127.0.0.1:{} to 127.0.0.1:", run.fact("port"));
    assert!(name.starts_with(&local), "{name}");
}

/// Of several descriptors, the one that was ready.
#[test]
fn a_poll_of_several_names_the_one_that_was_ready() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "polls", "100"])
        .report();
    assert_is_for_connection(&run, "poll");
}

#[test]
fn a_select_names_the_one_that_was_ready() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "select", "100"])
        .report();
    let sleeps = run.report["sleeps"].as_array().expect("a list");
    // glibc's select() is either call.
    let is_pselect = sleeps.iter().any(|sleep| sleep["syscall"] == "pselect6");
    assert_is_for_connection(&run, if is_pselect { "pselect6" } else { "select" });
}

/// The wait began before debox came, and goes on when the report is made.
#[test]
fn a_poll_under_way_names_what_it_waits_for() {
    for (mode, expected) in [
        ("poll", "tcp 127.0.0.1:"),
        ("polls", "(2 of them: pipe pipe:["),
    ] {
        let program = Background::start("socket_wait", &["tcp", mode, "60000"]);
        program.await_call(libc::SYS_poll);
        let pid = program.pid().to_string();
        let run = Debox::bare(["attach", "-p", &pid, "--for", "300ms"]).report();
        let calls = run.report["in_flight"].as_array().expect("a list");
        let call = calls.iter().find(|call| call["syscall"] == "poll");
        let resource = &call.expect("the call")["resource"];
        let name = resource["name"].as_str().unwrap_or_default();
        assert!(name.starts_with(expected), "{resource:#}");
    }
}

/// The wait began before debox came, and ended while it was there.
#[test]
fn a_poll_that_was_under_way_names_its_descriptor_when_it_ends() {
    // Emulated machines take seconds to load the probes; it ends before the limit of `attach` below.
    let wait_ms = (4000 * slowness().min(4)).to_string();
    let program = Background::start("socket_wait", &["tcp", "poll", &wait_ms]);
    program.await_call(libc::SYS_poll);
    let pid = program.pid().to_string();
    let run = Debox::bare(["attach", "-p", &pid, "--for", "40s"]).report();
    let sleeps = run.report["sleeps"].as_array().expect("a list");
    let sleep = sleeps.iter().find(|sleep| sleep["syscall"] == "poll");
    let resource = &sleep.expect("the sleep")["resource"];
    assert_eq!(resource["kind"], "socket", "{resource:#}");
}

#[test]
fn a_tcp_socket_receives() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "recv", "100"])
        .report();
    let recv = run
        .call("recvfrom")
        .calls(1)
        .sleep("TCP receive")
        .class("network")
        .count(1);
    recv.blocked_as_known().waker_interrupt("softirq");
}

#[test]
fn a_tcp_socket_is_full() {
    let run = Debox::run("socket_wait")
        .args(["tcp", "send", "100"])
        .report();
    let send = run
        .call("sendto")
        .calls(1)
        .sleep("TCP send")
        .class("network");
    send.blocked_as_known().waker_interrupt("softirq");
}

#[test]
fn a_condition_is_signalled() {
    let run = Debox::run("futex_wait").args(["cond", "100"]).report();
    let wait = run.call("futex").sleep("futex").class("lock");
    wait.between("blocked_ns", ms(100), ms(300));
    assert!(
        run.call("futex")
            .sleep("futex")
            .woken_by("task", Some("waker"))
            >= 1
    );
}

/// A wait that its time limit ended has a row of its own, though the kernel slept at the same place; so have the places
/// in the program.
#[test]
fn a_wait_that_ran_out_and_one_that_was_ended_have_their_own_call_sites() {
    let run = Debox::run("futex_wait")
        .args(["limit", "100"])
        .options(["--detail", "sleeps,callsites"])
        .report();
    for (label, function) in [
        ("timer", "wait_with_limit"),
        ("futex", "wait_without_limit"),
    ] {
        let mut rows = run.report["sleeps"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["label"] == label && row["syscall"] == "futex");
        let row = row.unwrap_or_else(|| panic!("no row of {label} in {:#}", run.report["sleeps"]));
        let blocked = row["blocked_ns"].as_u64().expect("a number");
        assert!((ms(100)..ms(300)).contains(&blocked), "{row:#}");
        let sites = row["call_sites"].as_array().expect("a list");
        let of = |field: &str| {
            sites
                .iter()
                .map(|site| site[field].as_u64())
                .sum::<Option<u64>>()
        };
        assert_eq!(of("blocked_ns"), Some(blocked), "{row:#}");
        assert_eq!(of("count"), row["count"].as_u64(), "{row:#}");
        let most = sites.iter().max_by_key(|site| site["blocked_ns"].as_u64());
        let caller = most.and_then(|site| site["caller"].as_str());
        assert!(
            caller.is_some_and(|caller| caller.starts_with(function)),
            "{row:#}"
        );
    }
}

#[test]
fn a_mutex_is_released() {
    let run = Debox::run("futex_wait").args(["mutex", "100"]).report();
    let wait = run.call("futex").sleep("futex").class("lock");
    wait.between("blocked_ns", ms(100), ms(300));
    assert!(
        run.call("futex")
            .sleep("futex")
            .woken_by("task", Some("waker"))
            >= 1
    );
}

#[test]
fn a_thread_is_joined() {
    let run = Debox::run("futex_wait").args(["join", "100"]).report();
    let wait = run.call("futex").sleep("futex").class("lock").count(1);
    wait.blocked_as_known().waker_task("waker");
}

#[test]
fn a_file_lock_is_held_by_a_child() {
    let run = Debox::run("flock_wait")
        .file_arg("lock")
        .args(["150"])
        .report();
    let flock = run.call("flock").sleep("flock").class("lock").count(1);
    flock
        .blocked_as_known()
        .waker_task("holder")
        .waker_tid(run.fact("holder_tid"));
}

#[test]
fn nanosleep_is_ended_by_its_timer() {
    let run = Debox::run("timers")
        .args(["nanosleep", "100", "3"])
        .report();
    let sleep = run
        .call("nanosleep")
        .calls(3)
        .errors(0)
        .sleep("timer")
        .class("idle")
        .count(3);
    sleep.blocked_as_known().waker_interrupt("hardirq");
    run.call("nanosleep")
        .between("max_ns", ms(100), ms(200))
        .between("p50_ns", ms(100), ms(200));
}

#[test]
fn timeouts_are_ended_by_their_timers() {
    for (what, call, label) in [
        ("epoll", "epoll_wait", "timer"),
        ("poll", "poll", "poll"),
        ("select", "select", "select"),
    ] {
        let run = Debox::run("timers").args([what, "60", "2"]).report();
        let wait = run
            .call(call)
            .calls(2)
            .errors(0)
            .sleep(label)
            .class("idle")
            .count(2);
        wait.blocked_as_known().waker_interrupt("hardirq");
    }
}

#[test]
fn an_event_loop_is_woken_by_its_event() {
    let run = Debox::run("epoll_event").args(["40", "5"]).report();
    let wait = run
        .call("epoll_wait")
        .calls(5)
        .sleep("epoll")
        .class("idle")
        .count(5);
    wait.blocked_as_known().waker_task("ringer");
}

#[test]
fn a_child_is_waited_for() {
    let run = Debox::run("children").args(["wait4", "150"]).report();
    let wait = run
        .call("wait4")
        .calls(1)
        .sleep("child process")
        .class("process")
        .count(1);
    wait.blocked_as_known()
        .waker_task("sleeper")
        .waker_tid(run.fact("child_tid"));
}

#[test]
fn a_vfork_parent_waits_for_its_child() {
    let run = Debox::run("children").args(["vfork", "150"]).report();
    let wait = run
        .call("vfork")
        .calls(1)
        .sleep("vfork child")
        .class("process")
        .count(1);
    wait.blocked_as_known()
        .waker_task("sleeper")
        .waker_tid(run.fact("child_tid"));
    run.call("nanosleep")
        .calls(1)
        .sleep("timer")
        .between("blocked_ns", ms(150) - 1, ms(300));
}

/// `basic` measures the same times and says nothing of why.
#[test]
fn without_sleeps_the_parts_are_the_same() {
    let run = Debox::run("pipe_read")
        .args(["thread", "200"])
        .options(["--detail", "basic"])
        .report();
    run.call("read").blocked_as_known();
    assert_eq!(run.report["sleeps"], serde_json::json!([]));
}
