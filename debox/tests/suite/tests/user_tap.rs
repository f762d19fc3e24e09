// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both taps on the same program say the same.
//!
//! Where they may differ: the user tap sees a program from its loader's end on, and only the calls
//! that go through libc's entry points. So it counts no `execve`, `exit`, `exit_group`, none of the
//! calls that make threads and processes, and nothing that libc calls inside itself; of those, the
//! ones that slept are listed as untapped. A call that a signal stops and the kernel begins anew is
//! two for the kernel tap and one for the user tap, with what lies between its pieces in `outside`.

use debox_tests::ms;
use debox_tests::slowness;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

fn under(tap: &str, name: &str, arguments: &[&str]) -> Measured {
    Debox::run(name)
        .args(arguments)
        .options(["--tap", tap])
        .report()
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_default()
}

/// Call, label, class, count and wakers of the sleeps that lasted.
fn sleeps(run: &Measured) -> Vec<(String, String, String, u64, Vec<String>)> {
    let rows = run.report["sleeps"].as_array().expect("a table");
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_string();
    let mut found: Vec<_> = rows
        .iter()
        .filter(|row| number(row, "blocked_ns") > ms(20))
        // How the programs let time pass while they look whether another one sleeps yet.
        .filter(|row| row["syscall"] != "clock_nanosleep")
        // How long a guest's host takes to hand over the program's file.
        .filter(|row| row["label"] != "FUSE answer")
        .map(|row| {
            let wakers = row["wakers"].as_array().expect("wakers").iter();
            let mut wakers: Vec<String> = wakers
                .map(|waker| format!("{} {}", text(waker, "kind"), text(waker, "comm")))
                .collect();
            wakers.sort();
            wakers.dedup();
            (
                text(row, "syscall"),
                text(row, "label"),
                text(row, "class"),
                number(row, "count"),
                wakers,
            )
        })
        .collect();
    found.sort();
    found
}

/// Everything that the waiting tests know, by both taps.
#[track_caller]
fn agree(name: &str, arguments: &[&str], call: &str) {
    let kernel = under("kernel", name, arguments);
    let user = under("user", name, arguments);
    assert_eq!(sleeps(&user), sleeps(&kernel), "{name} {arguments:?}");
    for run in [&kernel, &user] {
        let slept: u64 = run.call(call).number("blocked_ns");
        // A timer runs while its thread is still on the way to sleep.
        let on_its_way: u64 = run.call(call).number("cpu_ns");
        let slack = debox_tests::clock_slack_ns();
        let (least, most) = (run.fact("least_ns"), run.fact("most_ns"));
        assert!(
            slept + on_its_way + slack >= least && slept <= most + slack,
            "{name}: blocked {slept} and {on_its_way} on a CPU, known {least} to {most}"
        );
    }
    assert_eq!(
        user.call(call).number("calls"),
        kernel.call(call).number("calls") - calls_of_the_loader(call),
        "{name}"
    );
}

/// The loader reads one header of the C library.
fn calls_of_the_loader(call: &str) -> u64 {
    u64::from(call == "read")
}

#[test]
fn known_waits_are_the_same() {
    agree("pipe_read", &["thread", "100"], "read");
    agree("pipe_read", &["child", "50", "5"], "read");
    agree("pipe_full", &["100"], "write");
    agree("timers", &["nanosleep", "60", "3"], "nanosleep");
    for (what, call) in [
        ("epoll", "epoll_wait"),
        ("poll", "poll"),
        ("select", "select"),
    ] {
        agree("timers", &[what, "60", "2"], call);
    }
    agree("children", &["wait4", "80"], "wait4");
}

#[test]
fn known_waits_on_sockets_are_the_same() {
    for family in ["unix", "tcp"] {
        for (what, call) in [("accept", "accept4"), ("recv", "recvfrom")] {
            agree("socket_wait", &[family, what, "60"], call);
        }
    }
}

#[test]
fn events_and_file_locks_are_the_same() {
    agree("epoll_event", &["40", "5"], "epoll_wait");
    for tap in ["kernel", "user"] {
        let run = Debox::run("flock_wait")
            .file_arg("lock")
            .args(["100"])
            .options(["--tap", tap])
            .report();
        let flock = run.call("flock").sleep("flock").class("lock").count(1);
        flock.blocked_as_known().waker_task("holder");
    }
}

/// Two threads on one core: the same share of it, whichever tap looks.
#[test]
fn waiting_for_a_cpu_is_the_same() {
    let run = under("user", "one_core", &["2", "500"]);
    let (mut cpu, mut waited) = (0, 0);
    for spinner in run.threads("spinner") {
        // The scheduler does not count what the hypervisor took either.
        let stolen = spinner["stolen_ns"].as_u64().unwrap_or(0);
        cpu += number(spinner, "user_cpu_ns") + number(spinner, "kernel_cpu_ns") - stolen;
        waited += number(spinner, "runqueue_ns") + number(spinner, "preempted_ns");
    }
    // Interrupts are in neither for the scheduler; an emulated machine spends a tenth of its time on them.
    let percent = if slowness() > 1 { 12 } else { 3 };
    for (what, value) in [("cpu", cpu), ("delay", waited)] {
        let known = run.fact(&format!("section_{what}_ns"));
        assert!(
            value.abs_diff(known) <= (known * percent / 100).max(ms(5)),
            "{what}: {value} ns, by the scheduler's account {known} ns"
        );
    }
}

#[test]
fn faults_inside_read_are_reads() {
    let run = under("user", "fault_in_read", &["2000"]);
    run.call("read")
        .exactly("faults_minor", 2_000)
        .exactly("calls", run.fact("reads"));
}

/// One call, with the time between its two pieces outside it.
#[test]
fn a_stop_inside_read_is_outside_it() {
    let run = under("user", "signals", &["stop", "100"]);
    let read = run.call("read").calls(1).errors(0);
    let stopped = run.fact("stopped_ns");
    read.between("outside_ns", stopped - ms(1), stopped + ms(20));
    read.between(
        "blocked_ns",
        run.fact("least_ns") - debox_tests::clock_slack_ns(),
        run.fact("most_ns") - stopped + debox_tests::clock_slack_ns(),
    );
}

#[test]
fn sixty_four_threads_sleep_at_once() {
    let run = under("user", "many_threads", &["64", "100"]);
    run.call("nanosleep")
        .calls(64)
        .sleep("timer")
        .count(64)
        .between("blocked_ns", ms(6_400) - ms(7), ms(9_000));
    assert_eq!(run.threads("worker").len(), 64);
}

#[test]
fn every_thread_counts_its_own_calls() {
    let run = under("user", "many_threads", &["8", "1", "50000"]);
    run.call("getppid").calls(400_000).errors(0);
    for worker in run.threads("worker") {
        assert!(
            (50_000..50_020).contains(&number(worker, "calls")),
            "{worker:#}"
        );
    }
}

#[test]
fn calls_are_counted_to_the_last_one() {
    for detail in ["basic", "sleeps"] {
        let run = Debox::run("count")
            .options(["--tap", "user", "--detail", detail])
            .report();
        run.call("getppid").calls(10_000).errors(0);
        run.call("pread64").calls(1_000);
        run.call("open").calls(500).errors(500);
        run.call("dup").calls(300).errors(300);
        run.call("sched_yield").calls(77).errors(0);
        run.call("writev").calls(1).errors(0);
        run.call("syscall_65535").calls(5).errors(5);
        for unseen in ["execve", "exit_group"] {
            assert_eq!(run.count_of(unseen), 0);
        }
    }
}

/// Each interposed entry point makes the call that it is counted as.
#[test]
fn entry_points_are_counted_under_the_calls_they_make() {
    let kernel = under("kernel", "tap_entries", &[]);
    let user = under("user", "tap_entries", &[]);
    assert!(user.fact("entries") > 140);
    let names = |run: &Measured| -> Vec<String> {
        let rows = run.report["syscalls"].as_array().expect("a table").iter();
        rows.map(|row| row["name"].as_str().expect("a name").to_string())
            .collect()
    };
    let errors = |run: &Measured, name: &str| {
        let rows = run.report["syscalls"].as_array().expect("a table").iter();
        rows.filter(|row| row["name"] == name)
            .map(|row| number(row, "errors"))
            .sum::<u64>()
    };
    for name in names(&user).iter().chain(&names(&kernel)) {
        if name == "(user)" {
            continue;
        }
        // The loader's own calls are some tens, each entry point's two hundred.
        let (by_kernel, by_user) = (kernel.count_of(name), user.count_of(name));
        assert!(
            by_kernel.abs_diff(by_user) < 100,
            "{name}: {by_kernel}, {by_user}"
        );
        let (by_kernel, by_user) = (errors(&kernel, name), errors(&user, name));
        assert!(
            by_kernel.abs_diff(by_user) < 100,
            "errors of {name}: {by_kernel}, {by_user}"
        );
    }
}

/// The main thread's life, by its parts, is the program's duration, which is measured apart.
#[test]
fn a_life_adds_up_to_the_time_it_took() {
    for arguments in [["busy", "300", "0"], ["blocked", "100", "1"]] {
        let run = under("user", "tap_handlers", &arguments);
        let main = run.report["threads"].as_array().expect("a table").iter();
        let main = main
            .max_by_key(|row| number(row, "wall_ns"))
            .expect("a thread");
        assert_eq!(
            number(main, "wall_ns"),
            number(&run.report, "duration_ns"),
            "{main:#}"
        );
    }
}

/// What sleeps without passing an entry point of libc is listed, and nothing of the tap itself is.
#[test]
fn sleeps_outside_the_entry_points_are_listed() {
    let run = under("user", "tap_untapped", &[]);
    let untapped = run.report["untapped"].as_array().expect("a table");
    for (call, label) in [
        ("read", "pipe empty"),
        ("futex", "futex"),
        ("nanosleep", "timer"),
    ] {
        let row = untapped
            .iter()
            .find(|row| row["syscall"] == call && row["label"] == label)
            .unwrap_or_else(|| panic!("no {call}, {label} in {untapped:#?}"));
        assert!(
            (ms(45)..ms(90)).contains(&number(row, "blocked_ns")),
            "{row:#}"
        );
    }
    assert!(
        untapped.iter().all(|row| row["syscall"] != "recvmsg"),
        "{untapped:#?}"
    );
}
