// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of the kernel that no file and no process owns, and locks that were waited for before
//! anybody looked.

use std::time::Duration;

use debox_tests::kernel_has;
use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::Background;
use debox_tests::Debox;
use debox_tests::Measured;
use debox_tests::Scratch;
use debox_tests::CLOCK_SLACK_NS;
use serde_json::Value;

/// Everything of a column of the sleeps of a call.
#[track_caller]
fn column<'a>(run: &'a Measured, call: &str, column: &str) -> Vec<&'a Value> {
    let sleeps = run.report["sleeps"].as_array().expect("a report");
    let rows = sleeps.iter().filter(|row| row["syscall"] == call);
    rows.flat_map(|row| row[column].as_array().expect("an array"))
        .collect()
}

fn count(shares: &[&Value]) -> u64 {
    shares.iter().filter_map(|s| s["count"].as_u64()).sum()
}

/// The kernel announces a wait for a semaphore without saying that it is one, and nothing but its
/// address tells which. It knows who took it last since 6.16.
#[test]
fn a_semaphore_of_the_kernels_own_is_named() {
    let name = "a_semaphore_of_the_kernels_own_is_named";
    let files = ["/dev/vcs1", "/sys/class/vtconsole/vtcon0/bind"];
    let Some(file) = files.iter().find(|file| std::fs::File::open(file).is_ok()) else {
        return skipped(name, "this machine has no virtual terminals");
    };
    let mut slept = false;
    for _ in 0..5 {
        let run = Debox::run("semaphore").args([file, "60", "1000"]).report();
        let sleeps = run.fact("sleeps");
        if sleeps < 40 {
            continue; // all of the time on one CPU
        }
        slept = true;
        let resources = column(&run, "pread64", "resources");
        let seen = count(&resources);
        assert!(seen * 10 >= sleeps * 9 && seen <= sleeps, "{seen} {sleeps}");
        for resource in resources {
            assert_eq!(resource["kind"], "semaphore", "{resource:#}");
            let is_named = matches!(
                resource["name"].as_str(),
                Some(name) if name == "console_sem" || name.starts_with("_stext+0x")
            );
            assert!(is_named, "{resource:#}");
        }
        let mut owners = column(&run, "pread64", "owners");
        assert_eq!(count(&owners), seen);
        owners.retain(|owner| owner["certainty"] != "none");
        for owner in &owners {
            assert_eq!(owner["certainty"], "last holder", "{owner:#}");
            let is_one = owner["comm"] == "reader" || owner["tid"] == run.fact("holder_tid");
            assert!(is_one, "{owner:#}");
        }
        run.call("pread64")
            .all_sleeps()
            .class("lock")
            .waiters("all", 1, 3);
        if !kernel_has("last_holder") {
            assert!(owners.is_empty(), "{owners:#?}");
            return;
        }
        if !owners.is_empty() {
            return;
        }
    }
    if !slept {
        return skipped(name, "its threads never met at the semaphore");
    }
    panic!("the kernel knows who took the semaphore, and no owner was ever named");
}

/// How many threads of a process have this name and sleep without being interruptible.
fn blocked_threads(pid: u32, comm: &str) -> usize {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let stats = threads.flatten().map(|thread| {
        let path = thread.path().join("stat");
        std::fs::read_to_string(path).unwrap_or_default()
    });
    let name = format!("({comm}) D ");
    stats.filter(|stat| stat.contains(&name)).count()
}

/// A process in which three threads wait for the inode lock of a file, and one holds it that waits
/// for a page in turn; `None` where programs cannot make pages late.
fn process_with_a_held_lock(name: &str, file: &str, milliseconds: u64) -> Option<Background> {
    let milliseconds = milliseconds.to_string();
    let mut hung = Background::start("owner_file", &["inode", file, &milliseconds]);
    let pid = hung.pid();
    let is_ready = wait_for(Duration::from_secs(20), || {
        blocked_threads(pid, "waiter") == 3 || !hung.is_alive()
    });
    assert!(is_ready, "the threads never came to wait");
    if hung.is_alive() {
        return Some(hung);
    }
    skipped(
        name,
        "this kernel does not answer page faults of the kernel from user space",
    );
    None
}

/// What an owner does is known where the kernel finds tasks by their numbers (6.2).
fn assert_held_by_the_sleeping_holder(owner: &Value) {
    assert_eq!(owner["certainty"], "exact", "{owner:#}");
    assert_eq!(owner["comm"], "holder", "{owner:#}");
    if kernel_has("bpf_task_from_pid") {
        assert_eq!(owner["doing"], "userfaultfd answer", "{owner:#}");
    }
}

/// All of it began before anybody looked: the locks' events are long gone.
#[test]
fn a_process_that_hangs_says_which_lock_and_who_holds_it() {
    let name = "a_process_that_hangs_says_which_lock_and_who_holds_it";
    let scratch = Scratch::new();
    let file = scratch.file("written").display().to_string();
    let Some(hung) = process_with_a_held_lock(name, &file, 1_000_000) else {
        return;
    };
    let pid = hung.pid().to_string();
    let run = Debox::bare(["attach", "-p", &pid, "--for", "300ms"]).report();
    let all = run.report["in_flight"].as_array().expect("a table");
    let of = |comm: &'static str| all.iter().filter(move |call| call["comm"] == comm);
    assert_eq!(of("waiter").count(), 3, "{all:#?}");
    let holder = of("holder").next().expect("the holder is in its call");
    for waiter in of("waiter") {
        assert_eq!(waiter["label"], "inode lock", "{waiter:#}");
        assert_eq!(waiter["resource"]["kind"], "rwsem", "{waiter:#}");
        let lock = waiter["resource"]["name"].as_str().unwrap_or_default();
        let is_named = lock.starts_with("inode lock of /") && lock.ends_with("/written");
        assert!(is_named, "{waiter:#}");
        assert_held_by_the_sleeping_holder(&waiter["owner"]);
        assert_eq!(waiter["owner"]["tid"], holder["tid"], "{waiter:#}");
    }
    assert_eq!(holder["label"], "userfaultfd answer", "{holder:#}");
    assert!(holder["owner"].is_null(), "nobody holds a page: {holder:#}");
}

/// No argument of these calls leads to the lock: it is the parent's of the path.
#[test]
fn the_directory_that_a_path_leads_through_is_named() {
    let name = "the_directory_that_a_path_leads_through_is_named";
    let run = Debox::run("owner_file")
        .args(["directory"])
        .file_arg("listed")
        .args(["100"])
        .report();
    if run.fact("possible") == 0 {
        return skipped(
            name,
            "this kernel does not answer page faults of the kernel from user space",
        );
    }
    for call in ["open", "mkdir"] {
        let sleep = run.call(call).all_sleeps().class("lock").count(1);
        assert!(sleep.number("blocked_ns") + CLOCK_SLACK_NS >= run.fact("each_least_ns"));
        let resources = column(&run, call, "resources");
        let lock = resources[0]["name"].as_str().unwrap_or_default();
        let is_named = lock.starts_with("inode lock of /") && lock.ends_with("/listed");
        assert!(
            is_named && resources[0]["kind"] == "rwsem",
            "{resources:#?}"
        );
        let owners = column(&run, call, "owners");
        // Listing shares the lock on most file systems.
        let is_sure = ["exact", "last reader"]
            .iter()
            .any(|c| owners[0]["certainty"] == *c);
        let is_named = owners[0]["comm"] == "holder" && is_sure;
        if kernel_has("bpf_task_from_pid") {
            assert!(is_named, "{owners:#?}");
            assert_eq!(owners[0]["doing"], "userfaultfd answer", "{owners:#?}");
        }
    }
}

/// The report of a session that sees such a process hang until its end, if it was early enough and
/// saw the switches of the three.
fn session_over_the_end(
    hung: Background,
    end: &std::path::Path,
    after: Duration,
) -> Option<Measured> {
    let output = end.with_extension("report");
    let session = Debox::bare(["attach", "-p", &hung.pid().to_string(), "--for", "60s"])
        .options(["--format", "json", "--output"])
        .options([&output])
        .spawn();
    std::thread::sleep(after);
    std::fs::write(end, "").expect("the directory is writable");
    let finished = session.finish();
    if !finished.status.success() {
        return None; // the process had ended before it could be looked at
    }
    let run = finished.measured(&output);
    let waits = column(&run, "pwrite64", "owners");
    (count(&waits) == 3).then_some(run)
}

#[test]
fn waits_that_began_before_the_session_are_counted_for_their_lock() {
    let name = "waits_that_began_before_the_session_are_counted_for_their_lock";
    let mut last = None;
    for attempt in 0..8 {
        let scratch = Scratch::new();
        let file = scratch.file("written").display().to_string();
        let Some(hung) = process_with_a_held_lock(name, &file, 1_000_000) else {
            return;
        };
        // As long as it takes to be attached, which nobody tells.
        let after = Duration::from_millis((1_000 * slowness()) << (attempt / 3));
        last = session_over_the_end(hung, &scratch.file("written.end"), after);
        if last.is_some() {
            break;
        }
    }
    let run = last.expect("a session that saw all of it");
    let lock = run.call("pwrite64").sleep("inode lock").class("lock");
    let lock = lock.count(3).waiters("monitored", 3, 3);
    assert!(lock.number("blocked_ns") > 0, "{lock:#?}");
    let resources = column(&run, "pwrite64", "resources");
    let on_lock = resources.iter().filter(|r| r["kind"] == "rwsem");
    assert_eq!(on_lock.filter_map(|r| r["count"].as_u64()).sum::<u64>(), 3);
    for owner in column(&run, "pwrite64", "owners") {
        assert_held_by_the_sleeping_holder(owner);
    }
    let chains = run.report["chains"].as_array().expect("a table");
    // It may also have waited for debox, which reads what is mapped.
    let links = |chain: &Value| [0, 1].map(|at| chain["links"][at]["comm"].clone());
    let found = chains
        .iter()
        .any(|chain| links(chain) == ["waiter", "holder"]);
    assert!(found, "{chains:#?}");
}
