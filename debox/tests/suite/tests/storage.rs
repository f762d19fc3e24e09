// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for the disk and for the inode lock. What the device takes is not known beforehand; the
//! scheduler's account of the same section, taken by the program, is.

use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::Debox;
use debox_tests::Measured;

/// What the program's account may differ by: its own stamps lie outside the calls.
const SLACK_NS: u64 = 1_000_000;

/// Asserts that a sum of sleep times is what the scheduler says the section slept. To the scheduler
/// a task sleeps until it is on a run queue, to debox until it is woken: between the two a CPU that
/// idles may have to be called, which is a wait for a CPU.
#[track_caller]
fn as_the_scheduler_says(run: &Measured, blocked_ns: u64, runqueue_ns: u64) {
    let known = run.fact("section_asleep_ns");
    let slack = (SLACK_NS * slowness()).max(known * 3 / 100);
    assert!(
        blocked_ns <= known + slack && known <= blocked_ns + runqueue_ns + slack,
        "asleep {blocked_ns} ns, by the scheduler's account {known} ns, in {:#}",
        run.report["sleeps"]
    );
}

/// True when the file could be dropped from memory; a file system in memory never goes cold.
fn is_cold(name: &str, run: &Measured) -> bool {
    let (cold, count) = (run.fact("cold_pages"), run.fact("count"));
    if cold != count {
        skipped(
            name,
            &format!("only {cold} of {count} pages of a file could be made cold"),
        );
    }
    cold == count
}

#[test]
fn fsync_waits_for_the_disk() {
    let run = Debox::run("disk")
        .args(["fsync"])
        .file_arg("file")
        .args(["40"])
        .report();
    if run.fact("section_sleeps") == 0 {
        return skipped(
            "fsync_waits_for_the_disk",
            "fsync does not sleep on this file system",
        );
    }
    let fsync = run.call("fsync").calls(40).errors(0);
    let asleep = fsync.number("blocked_ns") + run.call("write").number("blocked_ns");
    let waited = fsync.number("runqueue_ns") + run.call("write").number("runqueue_ns");
    as_the_scheduler_says(&run, asleep, waited);
    fsync.all_sleeps().class("disk");
    let sleeps =
        fsync.all_sleeps().number("count") + run.call("write").all_sleeps().number("count");
    assert_eq!(
        sleeps,
        run.fact("section_sleeps"),
        "{:#}",
        run.report["sleeps"]
    );
}

#[test]
fn a_cold_file_is_read() {
    let run = Debox::run("disk")
        .args(["read"])
        .file_arg("file")
        .args(["64"])
        .report();
    if !is_cold("a_cold_file_is_read", &run) {
        return;
    }
    let read = run.call("pread64");
    as_the_scheduler_says(&run, read.number("blocked_ns"), read.number("runqueue_ns"));
    let pages = read.sleep("page read").class("disk");
    assert_eq!(
        read.all_sleeps().number("count"),
        run.fact("section_sleeps")
    );
    assert!(
        pages.number("blocked_ns") * 2 > read.number("blocked_ns"),
        "{pages:#?}"
    );
    assert_eq!(pages.woken_by("unknown", None), 0, "{pages:#?}");
}

#[test]
fn a_mapped_file_faults_in_user_code() {
    let run = Debox::run("disk")
        .args(["map"])
        .file_arg("file")
        .args(["64"])
        .report();
    if !is_cold("a_mapped_file_faults_in_user_code", &run) {
        return;
    }
    let user = run.call("(user)").between("faults_major", 64, 64 + 20);
    let reads = user.sleep("mapped page read").class("disk");
    as_the_scheduler_says(&run, reads.number("blocked_ns"), user.number("runqueue_ns"));
    // A read that ends before its fault comes to wait for it needs no sleep.
    reads.between("count", 64 - 8, 64 + 20);
}

/// With six threads that extend one file, the lock is always held by one that sleeps on the disk:
/// nearly all other time asleep is spent waiting for the lock, and a contender ends every such wait.
#[test]
fn extending_writes_wait_for_the_inode_lock() {
    let name = "extending_writes_wait_for_the_inode_lock";
    let run = Debox::run("inode_lock")
        .file_arg("file")
        .args(["6", "60"])
        .report();
    if run.fact("direct") == 0 {
        return skipped(name, "no O_DIRECT on this file system");
    }
    let write = run.call("pwrite64").calls(360).errors(0);
    as_the_scheduler_says(
        &run,
        write.number("blocked_ns"),
        write.number("runqueue_ns"),
    );
    let lock = write.sleep("inode lock").class("lock");
    assert!(
        lock.number("blocked_ns") * 2 > write.number("blocked_ns"),
        "{lock:#?}"
    );
    assert_eq!(
        lock.woken_by("task", Some("contender")),
        lock.number("count"),
        "{lock:#?}"
    );
    // One holds the lock or has just let it go; then it can be back before the next one is awake.
    let lock = lock.waiters("all", 2, 6);
    assert!(lock.number("count") >= 60, "{lock:#?}");
    let disk = write.sleep("direct I/O").class("disk");
    assert_eq!(disk.woken_by("unknown", None), 0, "{disk:#?}");
}

/// Bytes from and to storage are the calls' that caused them: pages read from a cold file, and pages
/// made dirty, which the kernel charges to the write and not to the write-back.
#[test]
fn bytes_are_counted_on_request() {
    let io = ["--detail", "sleeps,io"];
    let run = Debox::run("disk")
        .args(["read"])
        .file_arg("file")
        .args(["64"])
        .options(io)
        .report();
    if is_cold("bytes_are_counted_on_request", &run) {
        run.call("pread64")
            .exactly("read_bytes", 64 * 4096)
            .exactly("write_bytes", 0);
    }
    let run = Debox::run("disk")
        .args(["fsync"])
        .file_arg("file")
        .args(["40"])
        .options(io)
        .report();
    run.call("write")
        .exactly("write_bytes", 40 * 4096)
        .exactly("read_bytes", 0);
}
