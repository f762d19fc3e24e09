// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sleeps waited on, who held it, what the holder did, and who that waited for in turn.

use debox_tests::kernel_has;
use debox_tests::ms;
use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::Debox;
use debox_tests::Group;
use debox_tests::Limit;
use debox_tests::Measured;
use debox_tests::Scratch;
use debox_tests::CLOCK_SLACK_NS;
use serde_json::Value;

/// Everything of a column of the sleeps of one call with one label.
#[track_caller]
fn column<'a>(run: &'a Measured, call: &str, label: &str, column: &str) -> Vec<&'a Value> {
    let sleeps = run.report["sleeps"].as_array().expect("a report");
    let rows = sleeps
        .iter()
        .filter(|row| row["syscall"] == call && row["label"] == label);
    rows.flat_map(|row| row[column].as_array().expect("an array"))
        .collect()
}

/// The owners that are known.
#[track_caller]
fn owners<'a>(run: &'a Measured, call: &str, label: &str) -> Vec<&'a Value> {
    let mut owners = column(run, call, label, "owners");
    owners.retain(|owner| owner["certainty"] != "none");
    owners
}

/// Whether the kernel does not tell on what a task sleeps that only its number names.
fn knows_no_numbers(test: &str) -> bool {
    let knows = sees_what_owners_do();
    if !knows {
        let reason = "this kernel does not let probes find tasks by their numbers (Linux 6.2)";
        skipped(test, reason);
    }
    !knows
}

/// Whether this kernel's probes can look at an owner that does not run: they find it by its number.
fn sees_what_owners_do() -> bool {
    kernel_has("bpf_task_from_pid")
}

/// Asserts the one known owner of these sleeps.
#[track_caller]
fn one_owner(run: &Measured, call: &str, label: &str, comm: &str, count: u64, doing: &str) {
    let owners = owners(run, call, label);
    assert_eq!(owners.len(), 1, "{owners:#?}");
    assert_eq!(owners[0]["certainty"], "exact", "{owners:#?}");
    assert_eq!(owners[0]["comm"], comm, "{owners:#?}");
    assert_eq!(owners[0]["tid"], run.fact("holder_tid"), "{owners:#?}");
    assert_eq!(owners[0]["count"], count, "{owners:#?}");
    if sees_what_owners_do() {
        assert_eq!(owners[0]["doing"], doing, "{owners:#?}");
    }
}

#[track_caller]
fn named(run: &Measured, call: &str, label: &str, kind: &str, name: &str) {
    let resources = column(run, call, label, "resources");
    let found = resources.iter().any(|resource| {
        let text = resource["name"].as_str().unwrap_or_default();
        resource["kind"] == kind && text.contains(name)
    });
    assert!(found, "no {kind} {name} among {resources:#?}");
}

/// The only chain that begins with a thread of this name.
#[track_caller]
fn chain<'a>(run: &'a Measured, comm: &str) -> &'a Value {
    let chains = run.report["chains"].as_array().expect("a report");
    // A program may also have to wait for its address space, while debox reads what is mapped there.
    let is_for_debox = |chain: &Value| {
        let links = chain["links"].as_array().expect("links");
        links.last().is_some_and(|last| last["comm"] == "debox")
    };
    // Two processes that open the same new file may meet at its directory.
    let is_at_the_directory = |chain: &Value| chain["links"][0]["label"] == "directory lock";
    let found: Vec<&Value> = chains
        .iter()
        .filter(|chain| chain["links"][0]["comm"] == comm)
        .filter(|chain| !is_for_debox(chain) && !is_at_the_directory(chain))
        .collect();
    assert_eq!(found.len(), 1, "{chains:#?}");
    found[0]
}

/// A thread of a test program, which tells its id.
fn task<'a>(run: &Measured, name: &'a str) -> (&'a str, u64) {
    (name, run.fact(&format!("{name}_tid")))
}

/// One link of a chain: the task's name and id, where it waited, and how long at least and at most.
#[track_caller]
fn link(chain: &Value, index: usize, task: (&str, u64), label: &str, wait: (u64, u64)) {
    let (link, (comm, tid), (least, most)) = (&chain["links"][index], task, wait);
    let waited = link["waited_ns"].as_u64().expect("it was monitored");
    let (least, most) = (least.saturating_sub(CLOCK_SLACK_NS), most + CLOCK_SLACK_NS);
    assert_eq!(link["comm"], comm, "{chain:#}");
    assert_eq!(link["tid"], tid, "{chain:#}");
    assert_eq!(link["label"], label, "{chain:#}");
    assert!(
        (least..=most).contains(&waited),
        "{waited} is not in {least}..={most}: {chain:#}"
    );
}

fn length(chain: &Value) -> usize {
    chain["links"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_mutex_is_held_by_a_sleeping_thread() {
    let run = Debox::run("owner_mutex").args(["held", "150"]).report();
    one_owner(&run, "futex", "futex", "holder", 1, "timer");
    named(&run, "futex", "futex", "futex", "mutex (owner_mutex)");
    let chain = chain(&run, "waiter");
    assert_eq!(
        (length(chain), chain["end"].as_str()),
        (2, Some("complete"))
    );
    assert_eq!(chain["count"], 1);
    assert_eq!(chain["links"][0]["certainty"], "exact");
    if sees_what_owners_do() {
        assert_eq!(chain["links"][1]["doing"], "asleep");
    }
    let (least, most) = (run.fact("least_ns"), run.fact("most_ns"));
    link(chain, 0, task(&run, "waiter"), "futex", (least, most));
    let most = run.fact("holder_most_ns");
    link(chain, 1, task(&run, "holder"), "timer", (least, most));
}

/// The machine may push the holder off its CPU in the moment that counts, but not each time.
#[test]
fn a_mutex_is_held_by_a_spinning_thread() {
    let mut seen_spinning = false;
    for _ in 0..5 {
        let run = Debox::run("owner_mutex").args(["spun", "5"]).report();
        let owners = owners(&run, "futex", "futex");
        assert!(!owners.is_empty(), "{:#}", run.report["sleeps"]);
        for owner in owners {
            assert_eq!(owner["comm"], "holder", "{owner:#}");
            match owner["doing"].as_str() {
                Some("on CPU") => seen_spinning = true,
                Some("waiting for a CPU") => {}
                other => panic!("the holder spins, but was {other:?}"),
            }
        }
        let chain = chain(&run, "waiter");
        assert_eq!(chain["links"][1]["waited_ns"], 0, "{chain:#}");
        assert!(chain["links"][1]["label"].is_null(), "{chain:#}");
        if seen_spinning {
            return;
        }
    }
    panic!("never seen on a CPU");
}

#[test]
fn a_chain_has_three_links() {
    let run = Debox::run("owner_mutex").args(["chain", "150"]).report();
    let chain = chain(&run, "waiter");
    assert_eq!(
        (length(chain), chain["end"].as_str()),
        (3, Some("complete"))
    );
    let (least, most) = (run.fact("least_ns"), run.fact("most_ns"));
    link(chain, 0, task(&run, "waiter"), "futex", (least, most));
    link(chain, 1, task(&run, "middle"), "futex", (least, most));
    let most = run.fact("holder_most_ns");
    link(chain, 2, task(&run, "holder"), "timer", (least, most));
    named(&run, "futex", "futex", "futex", "second (owner_mutex)");
}

/// Without call sites of all calls, too, a wait for a mutex has the program's own function for its place, and
/// waits for two mutexes are two.
#[test]
fn waits_for_mutexes_are_told_apart_by_their_callers() {
    let run = Debox::run("owner_mutex").args(["chain", "150"]).report();
    let sites = column(&run, "futex", "futex", "call_sites");
    let callers = sites.iter().filter_map(|site| site["caller"].as_str());
    let callers: Vec<&str> = callers.collect();
    for function in ["wait_for+", "stand_between+"] {
        let found = callers.iter().any(|caller| caller.starts_with(function));
        assert!(found, "{function} is not among {callers:?}");
    }
    for site in sites {
        let frames = site["frames"].as_array().expect("a list");
        assert!(frames.len() >= 2, "{site:#}");
    }
}

#[test]
fn a_cycle_is_cut() {
    if knows_no_numbers("a_cycle_is_cut") {
        return;
    }
    let run = Debox::run("owner_mutex").args(["cycle", "100"]).report();
    let (impatient, patient) = (run.fact("waiter_tid"), run.fact("holder_tid"));
    let first = chain(&run, "impatient");
    assert_eq!((length(first), first["end"].as_str()), (2, Some("cycle")));
    let most = run.fact("most_ns");
    link(first, 0, ("impatient", impatient), "futex", (ms(99), most));
    link(first, 1, ("patient", patient), "futex", (1, most));
    let second = chain(&run, "patient");
    assert_eq!((length(second), second["end"].as_str()), (2, Some("cycle")));
    link(second, 1, ("impatient", impatient), "futex", (1, most));
}

#[test]
fn a_word_that_is_no_mutex_has_no_owner() {
    let run = Debox::run("owner_mutex").args(["word", "10"]).report();
    let owners = column(&run, "futex", "futex", "owners");
    let sleeps: u64 = owners.iter().filter_map(|o| o["count"].as_u64()).sum();
    // One has no value that a lock with waiters has: nobody can hold that, and its end is a timer's.
    assert!(sleeps >= run.fact("words") - 1, "{owners:#?}");
    run.call("futex").sleep("timer").class("idle").count(1);
    for owner in owners {
        assert_eq!(owner["certainty"], "none", "{owner:#}");
        assert!(owner["tid"].is_null() && owner["comm"].is_null() && owner["doing"].is_null());
    }
    assert_eq!(run.report["chains"], serde_json::json!([]));
}

#[test]
fn flock_names_its_holder() {
    let run = Debox::run("flock_wait")
        .file_arg("lock")
        .args(["150"])
        .report();
    let owners = owners(&run, "flock", "flock");
    assert_eq!(owners.len(), 1, "{owners:#?}");
    assert_eq!(owners[0]["tid"], run.fact("holder_tid"));
    assert_eq!(owners[0]["certainty"], "exact");
    named(&run, "flock", "flock", "file", "/lock");
    let chain = chain(&run, "flock_wait");
    let most = run.fact("most_ns");
    // The holder's own sleep; the wait for it is longer by the holder's way there and back.
    link(chain, 1, task(&run, "holder"), "timer", (ms(150), most));
}

/// Two processes hold locks on the file; only one of them is in the way.
#[test]
fn a_posix_lock_names_the_holder_of_the_range() {
    let run = Debox::run("owner_file")
        .args(["posix"])
        .file_arg("locked")
        .args(["120"])
        .report();
    let label = "POSIX file lock";
    run.call("fcntl").sleep(label).count(1).blocked_as_known();
    let owners = owners(&run, "fcntl", label);
    assert_eq!(owners.len(), 1, "{owners:#?}");
    assert_eq!(owners[0]["comm"], "holder");
    assert_eq!(owners[0]["tid"], run.fact("holder_tid"));
    named(&run, "fcntl", label, "file", "/locked");
}

/// The same kernel function waits for both kinds of lock: the call's argument makes the label. And
/// an open file is no task.
#[test]
fn a_lock_of_an_open_file_has_its_own_label_and_no_owner() {
    let run = Debox::run("owner_file")
        .args(["ofd"])
        .file_arg("locked")
        .args(["100"])
        .report();
    let label = "open file description lock";
    run.call("fcntl").sleep(label).count(1).blocked_as_known();
    let owners = column(&run, "fcntl", label, "owners");
    assert_eq!(owners.len(), 1, "{owners:#?}");
    assert_eq!(owners[0]["certainty"], "none");
}

#[test]
fn an_inode_lock_is_held_by_a_sleeping_writer() {
    let run = Debox::run("owner_file")
        .args(["inode"])
        .file_arg("written")
        .args(["120"])
        .report();
    if run.fact("possible") == 0 {
        return skipped(
            "an_inode_lock_is_held_by_a_sleeping_writer",
            "this kernel does not answer page faults of the kernel from user space",
        );
    }
    let waiters = run.fact("waiters");
    let least = run.fact("each_least_ns");
    let sleep = run.call("pwrite64").sleep("inode lock").class("lock");
    let sleep = sleep.count(waiters).waiters("all", waiters, waiters);
    let blocked = sleep.number("blocked_ns");
    assert!(
        blocked >= waiters * (least - CLOCK_SLACK_NS),
        "{blocked} {least}"
    );
    assert_eq!(sleep.number("waiters_exit_max"), waiters - 1);
    one_owner(
        &run,
        "pwrite64",
        "inode lock",
        "holder",
        waiters,
        "userfaultfd answer",
    );
    named(&run, "pwrite64", "inode lock", "rwsem", "inode lock of /");
    named(&run, "pwrite64", "inode lock", "rwsem", "/written");
    let chain = chain(&run, "waiter");
    assert_eq!((length(chain), chain["count"].as_u64()), (2, Some(waiters)));
    let holder = &chain["links"][1];
    assert_eq!(holder["label"], "userfaultfd answer", "{chain:#}");
    let held = holder["waited_ns"].as_u64().expect("it was monitored");
    assert!(
        held >= waiters * (least - CLOCK_SLACK_NS) && held <= blocked,
        "{chain:#}"
    );
}

/// Extending a file with O_DIRECT keeps the inode lock while the device works.
#[test]
fn an_inode_lock_is_held_by_direct_io() {
    let run = Debox::run("inode_lock")
        .file_arg("file")
        .args(["6", "40"])
        .report();
    if run.fact("direct") == 0 {
        let name = "an_inode_lock_is_held_by_direct_io";
        return skipped(name, "no O_DIRECT on this file system");
    }
    let all = column(&run, "pwrite64", "inode lock", "owners");
    let count =
        |owners: &[&Value]| -> u64 { owners.iter().filter_map(|o| o["count"].as_u64()).sum() };
    let mut known = all.clone();
    known.retain(|owner| owner["certainty"] == "exact");
    // A waiter may leave the CPU in the moment in which the lock changes hands.
    assert!(count(&known) * 10 >= count(&all) * 9, "{all:#?}");
    assert!(
        known.iter().all(|owner| owner["comm"] == "contender"),
        "{all:#?}"
    );
    if sees_what_owners_do() {
        known.retain(|owner| owner["doing"] == "direct I/O");
        assert!(!known.is_empty(), "{all:#?}");
    }
    named(&run, "pwrite64", "inode lock", "rwsem", "/file");
}

/// A thread reads its process's memory from pages that have to come from the disk, and another one
/// maps meanwhile.
#[test]
fn the_mmap_lock_is_held_by_a_fault() {
    let name = "the_mmap_lock_is_held_by_a_fault";
    if knows_no_numbers(name) {
        return;
    }
    let group = match Group::new(Limit::Reads(Scratch::new().path(), 100)) {
        Ok(group) => group,
        Err(error) => return skipped(name, &error),
    };
    let run = Debox::run("owner_file")
        .args(["mmap"])
        .file_arg("mapped")
        .within(&group)
        .report();
    if run.fact("faults_major") < 20 {
        return skipped(name, "the file's pages could not be made cold");
    }
    let mut reads = 0;
    for call in ["mmap", "munmap"] {
        for owner in owners(&run, call, "mmap lock") {
            let known = [
                run.fact("holder_tid"),
                run.fact("mapper_tid"),
                run.fact("pid"),
            ];
            // debox reads the mappings now and then, and holds the lock then as anybody.
            let is_known = known.iter().any(|tid| owner["tid"] == *tid);
            assert!(is_known || owner["comm"] == "debox", "{owner:#}");
            let is_reading = owner["certainty"] == "last reader"
                && owner["comm"] == "reader"
                && owner["doing"] == "mapped page read";
            reads += u64::from(is_reading);
        }
    }
    assert!(reads > 0, "{:#}", run.report["sleeps"]);
    let lock = format!("mmap lock of process {}", run.fact("pid"));
    let resources = [
        column(&run, "mmap", "mmap lock", "resources"),
        column(&run, "munmap", "mmap lock", "resources"),
    ];
    let all = resources.concat();
    assert!(!all.is_empty());
    for resource in all {
        assert_eq!(resource["name"], lock.as_str());
        assert_eq!(resource["kind"], "rwsem");
    }
}

#[test]
fn resources_have_names() {
    let tcp = Debox::run("socket_wait")
        .args(["tcp", "recv", "60"])
        .report();
    named(&tcp, "recvfrom", "TCP receive", "socket", "tcp 127.0.0.1:");
    named(&tcp, "recvfrom", "TCP receive", "socket", " to 127.0.0.1:");
    let unix = Debox::run("socket_wait")
        .args(["unix", "recv", "60"])
        .report();
    let peer = format!("peer process {} (socket_wait)", unix.fact("pid"));
    named(&unix, "recvfrom", "Unix socket empty", "socket", &peer);
    let pipe = Debox::run("pipe_read").args(["child", "60", "1"]).report();
    named(&pipe, "read", "pipe empty", "pipe", "pipe:[");
    assert_eq!(
        column(&pipe, "read", "pipe empty", "owners"),
        Vec::<&Value>::new()
    );
    let child = Debox::run("children").args(["wait4", "60"]).report();
    let process = format!("process {}", child.fact("child_tid"));
    named(&child, "wait4", "child process", "child", &process);
    // The name is looked up while the thread waits.
    let wait_ms = (60 * slowness()).to_string();
    let condition = Debox::run("futex_wait").args(["cond", &wait_ms]).report();
    named(&condition, "futex", "futex", "futex", "condition+");
}

/// A fault names no descriptor, but its requests go to a device.
#[test]
fn a_major_fault_waits_for_a_disk() {
    let run = Debox::run("disk")
        .args(["map"])
        .file_arg("file")
        .args(["16"])
        .report();
    let name = "a_major_fault_waits_for_a_disk";
    if run.fact("cold_pages") < 16 {
        return skipped(name, "the file's pages could not be made cold");
    }
    let count = |row: &&Value| row["count"].as_u64().expect("a count");
    let sleeps = run.report["sleeps"].as_array().expect("a report");
    let is_fault = |row: &&Value| row["syscall"] == "(user)" && row["label"] == "mapped page read";
    let waits: u64 = sleeps.iter().filter(is_fault).map(|row| count(&row)).sum();
    // A disk of a virtual machine may answer before the thread has gone to sleep.
    if waits < 4 {
        return skipped(name, "the disk answers at once");
    }
    let resources = column(&run, "(user)", "mapped page read", "resources");
    let on_disk = resources.iter().filter(|r| r["kind"] == "disk");
    let reads: u64 = on_disk.clone().map(count).sum();
    assert!(reads + 2 >= waits, "{:#}", run.report["sleeps"]);
    for disk in on_disk {
        let disk = disk["name"].as_str().expect("a disk has a name");
        let is_there = std::path::Path::new("/sys/class/block").join(disk).exists();
        assert!(is_there, "there is no disk {disk}");
    }
}

/// glibc's own futexes are out of the user tap's sight; who held them is not.
#[test]
fn the_user_tap_tells_owners_too() {
    if knows_no_numbers("the_user_tap_tells_owners_too") {
        return;
    }
    let run = Debox::run("owner_mutex")
        .options(["--tap", "user"])
        .args(["held", "100"])
        .report();
    let untapped = run.report["untapped"].as_array().expect("a report");
    let futex = untapped.iter().find(|call| call["syscall"] == "futex");
    let futex = futex.unwrap_or_else(|| panic!("no futex in {untapped:#?}"));
    let owners = futex["owners"].as_array().expect("an array");
    let known = owners.iter().find(|owner| owner["certainty"] == "exact");
    let known = known.unwrap_or_else(|| panic!("no owner in {futex:#}"));
    assert_eq!(known["tid"], run.fact("holder_tid"));
    assert_eq!(known["doing"], "timer");
    let chain = chain(&run, "waiter");
    let (least, most) = (run.fact("least_ns"), run.fact("holder_most_ns"));
    let holder = run.fact("holder_tid");
    link(chain, 1, ("holder", holder), "timer", (least, most));
}
