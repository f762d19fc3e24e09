// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls counted to the last one: against a program whose numbers are known, and against strace.
//!
//! Where the two look: debox sees a program from the entry of the `execve` that starts it, strace
//! from that call's end. Both count it. `exit_group` never returns: strace does not count it.
//! A call that a signal makes the kernel start anew is two for both, but how often that happens is
//! chance, and strace itself adds to it (a traced process always has its children's ends delivered):
//! of `clone`, only the calls that were not begun anew are compared. Nothing that debox itself does
//! is in its report, so every other count must agree exactly.

use std::collections::BTreeMap;
use std::process::Command;

use debox_tests::program;
use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Exclusive;
use debox_tests::Measured;
use debox_tests::Scratch;
use serde_json::Value;

/// What debox/tests/truth/programs/count.c does.
#[track_caller]
fn counted_to_the_last_one(run: &Measured) {
    run.call("getppid").calls(10_000).errors(0);
    run.call("pread64").between("calls", 1_000, 1_010); // and the loader's own few
    run.call("open").calls(500).errors(500);
    run.call("dup").calls(300).errors(300);
    run.call("sched_yield").calls(77).errors(0);
    run.call("writev").calls(1).errors(0);
    run.call("execve").calls(1).errors(0);
    let calls = run.report["syscalls"].as_array().expect("a table");
    let unknown: Vec<&Value> = calls
        .iter()
        .filter(|row| {
            row["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("syscall_"))
        })
        .collect();
    assert_eq!(unknown.len(), 1, "{unknown:#?}");
    assert_eq!(
        (&unknown[0]["calls"], &unknown[0]["errors"]),
        (&5.into(), &5.into())
    );
    // Only the two readings of the CPU clock enter the kernel: the vDSO answers the thousand others.
    run.call("clock_gettime").calls(2);
}

#[test]
fn a_dynamic_program_is_counted_exactly() {
    counted_to_the_last_one(&Debox::run("count").report());
}

#[test]
fn a_static_program_is_counted_exactly() {
    counted_to_the_last_one(&Debox::run("count_static").report());
}

#[test]
fn every_detail_counts_alike() {
    for detail in ["basic", "sleeps,callsites", "sleeps,irq", "sleeps,io"] {
        counted_to_the_last_one(&Debox::run("count").options(["--detail", detail]).report());
    }
}

/// Calls and errors by name, from `strace -f -c`.
fn strace_counts(name: &str, arguments: &[&str]) -> Option<BTreeMap<String, (u64, u64)>> {
    let scratch = Scratch::new();
    let _turn = Exclusive::take();
    let summary = scratch.file("summary");
    let status = Command::new("strace")
        // The loader would search cargo's directories, and strace would count that.
        .env_remove("LD_LIBRARY_PATH")
        .args(["-f", "-c", "-U", "name,calls,errors", "-o"])
        .arg(&summary)
        .arg(program(name))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .status()
        .ok()?;
    assert!(status.success(), "strace: {status}");
    let text = std::fs::read_to_string(&summary).expect("strace wrote its summary");
    let mut counts = BTreeMap::new();
    for line in text.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(Ok(calls))) = (words.first(), words.get(1).map(|word| word.parse()))
        else {
            continue;
        };
        let errors = words
            .get(2)
            .map_or(0, |word| word.parse().expect("a number"));
        counts.insert(name.to_string(), (calls, errors));
    }
    counts.remove("total");
    Some(counts)
}

/// Calls and errors by name, from a report.
fn debox_counts(run: &Measured) -> BTreeMap<String, (u64, u64)> {
    let calls = run.report["syscalls"].as_array().expect("a table");
    let field = |row: &Value, field: &str| row[field].as_u64().expect("a number");
    calls
        .iter()
        .filter(|row| row["name"] != "(user)")
        .filter(|row| field(row, "calls") > 0)
        .map(|row| {
            let name = row["name"].as_str().expect("a name").to_string();
            let anew = if name == "clone" {
                field(row, "restarts")
            } else {
                0
            };
            (name, (field(row, "calls") - anew, field(row, "errors")))
        })
        .collect()
}

#[test]
fn strace_counts_the_same() {
    let cases: [(&str, &[&str]); 3] = [
        ("count", &[]),
        ("count_static", &[]),
        ("children", &["many", "20"]),
    ];
    for (name, arguments) in cases {
        let Some(mut strace) = strace_counts(name, arguments) else {
            return skipped("strace_counts_the_same", "no strace here");
        };
        let mut debox = debox_counts(&Debox::run(name).args(arguments).report());
        for counts in [&mut strace, &mut debox] {
            counts.remove("exit_group");
            // A number without a name is `syscall_0xf423f` there and a row for all such here.
            counts.retain(|name, _| !name.starts_with("syscall_"));
        }
        // strace counts the pieces of a call begun anew as errors.
        if let Some((calls, errors)) = strace.get_mut("clone") {
            (*calls, *errors) = (*calls - *errors, 0);
        }
        assert_eq!(
            debox, strace,
            "{name} {arguments:?}: debox left, strace right"
        );
    }
}

#[test]
fn calls_of_the_32_bit_table_have_their_own_names() {
    let run = Debox::run("ia32").report();
    if run.fact("supported") == 0 {
        return skipped(
            "calls_of_the_32_bit_table",
            "this kernel takes no 32-bit calls",
        );
    }
    run.call("getpid (ia32)").calls(400).errors(0);
    run.call("writev").calls(1);
}

/// Eight threads on all CPUs count into the same rows.
#[test]
fn no_call_is_lost_between_cpus() {
    let run = Debox::run("many_threads")
        .args(["8", "1", "50000"])
        .report();
    run.call("getppid").calls(400_000).errors(0);
    for worker in run.threads("worker") {
        let calls = worker["calls"].as_u64().expect("a number");
        let missed = run.lost("probe_misses");
        assert!(
            (50_000 - missed.min(50_000)..50_020).contains(&calls),
            "{worker:#}"
        );
    }
}
