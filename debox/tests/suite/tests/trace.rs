// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call tree inside the kernel (`--trace`): by samples everywhere, by function probes where the
//! kernel offers them. That functions and their order are right is shown in the guests.

use debox_tests::ms;
use debox_tests::Debox;
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

#[track_caller]
fn inside<'a>(report: &'a Value, syscall: &str) -> &'a Value {
    let tree = report["trace"]["tree"].as_array().expect("a tree");
    match tree.iter().find(|call| call["syscall"] == syscall) {
        Some(call) => call,
        None => panic!("nothing of `{syscall}` in {tree:#?}"),
    }
}

/// Whether a function is anywhere in a tree.
fn has(functions: &Value, name: &str) -> bool {
    functions
        .as_array()
        .expect("functions")
        .iter()
        .any(|function| {
            let found = function["function"].as_str().expect("a name");
            found.split('.').next() == Some(name) || has(&function["children"], name)
        })
}

/// What is below a function is at most what is in it, throughout.
fn check_sums(functions: &Value, field: &str) {
    for function in functions.as_array().expect("functions") {
        let below = function["children"].as_array().expect("functions");
        let sum: u64 = below.iter().map(|child| number(&child[field])).sum();
        assert!(sum <= number(&function[field]), "{function:#}");
        check_sums(&function["children"], field);
    }
}

fn nothing_lost(report: &Value) {
    let lost = report["trace"]["lost"].as_object().expect("losses");
    for (kind, count) in lost {
        assert_eq!(number(count), 0, "{kind}: {lost:#?}");
    }
}

#[test]
fn samples_are_as_many_as_the_time_on_the_cpu() {
    let run = Debox::run("trace_calls")
        .options(["--trace", "--trace-method", "sampled"])
        .args(["read", "500"])
        .report();
    let trace = &run.report["trace"];
    assert_eq!(trace["method"], "sampled");
    assert!(trace["depth_max"].is_null());
    let period = number(&trace["period_ns"]);
    let call = inside(&run.report, "pread64");
    assert!(call["total_ns"].is_null(), "samples have no time");
    check_sums(&call["functions"], "samples");
    nothing_lost(&run.report);

    let samples = number(&call["samples"]);
    let on_cpu = run.report["syscalls"]
        .as_array()
        .expect("a table")
        .iter()
        .find(|row| row["name"] == "pread64")
        .map(|row| number(&row["cpu_ns"]))
        .expect("a row");
    assert!(on_cpu > ms(100), "the program read for half a second");
    // The clock of a CPU that the hypervisor takes away misses ticks; it never makes any up.
    let expected = on_cpu / period;
    assert!(
        samples > expected / 3 && samples < expected * 5 / 4,
        "{samples} samples in {on_cpu} ns, one each {period} ns"
    );
    assert!(has(&call["functions"], "vfs_read") || has(&call["functions"], "ksys_pread64"));
    // Copying a megabyte is what the call does.
    let top = &call["functions"][0];
    assert!(number(&top["samples"]) * 10 > samples * 8, "{top:#}");
}

#[test]
fn tracepoints_that_a_call_passed_are_counted() {
    let run = Debox::run("trace_calls")
        .options(["--trace", "--trace-method", "sampled"])
        .args(["grow", "7", "1"])
        .report();
    let events = inside(&run.report, "fork")["events"]
        .as_array()
        .expect("events")
        .clone();
    let forks = events
        .iter()
        .find(|event| event["event"] == "sched_process_fork");
    assert_eq!(
        forks.map(|event| number(&event["count"])),
        Some(7),
        "{events:#?}"
    );
}

#[test]
fn without_being_asked_there_is_no_tree() {
    let run = Debox::run("trace_calls").args(["once"]).report();
    assert!(run.report["trace"].is_null());
}

#[test]
fn the_best_method_is_taken_and_what_is_missing_is_said() {
    let run = Debox::run("trace_calls")
        .options(["--trace=vfs,process"])
        .args(["once"])
        .report();
    let trace = &run.report["trace"];
    let lacks = trace["instead_of"].as_array().expect("lacks");
    for lack in lacks {
        let (method, why) = (lack["method"].as_str(), lack["why"].as_str());
        assert!(why.is_some_and(|why| !why.is_empty()), "{lack:#}");
        // What is said to be missing is refused when asked for, with the same words.
        let option = match method.expect("a name") {
            "kprobe.session" => "session",
            "kprobe.multi" => "multi",
            other => other,
        };
        Debox::run("trace_calls")
            .options(["--trace", "--trace-method", option])
            .args(["once"])
            .finish()
            .code(125)
            .says(&["does not offer", why.expect("words")]);
    }
    if trace["method"] == "sampled" {
        assert_eq!(lacks.len(), 3, "{trace:#}");
        return;
    }
    assert!(number(&trace["functions_attached"]) > 100);
    let open = inside(&run.report, "open");
    // Which of the two it is called depends on the kernel (7.x).
    let is_opened = ["do_filp_open", "do_file_open"].map(|name| has(&open["functions"], name));
    assert!(is_opened.contains(&true), "{open:#}");
    check_sums(&open["functions"], "total_ns");
}

#[test]
fn functions_that_do_not_exist_are_named() {
    Debox::run("trace_calls")
        .options(["--trace=vfs,no_such_function"])
        .args(["once"])
        .finish()
        .code(125)
        .says(&["no_such_function", "groups"]);
}

#[test]
fn the_user_tap_refuses_in_words() {
    Debox::run("trace_calls")
        .options(["--tap", "user", "--trace"])
        .args(["once"])
        .finish()
        .code(125)
        .says(&["--trace", "--tap kernel"]);
}

#[test]
fn a_depth_beyond_what_is_kept_is_a_usage_error() {
    for depth in ["0", "33", "many"] {
        Debox::run("trace_calls")
            .options(["--trace", "--trace-depth", depth])
            .finish()
            .code(2);
    }
}

#[test]
fn a_tree_is_printed() {
    Debox::run("trace_calls")
        .options(["--trace", "--trace-method", "sampled"])
        .args(["read", "200"])
        .finish()
        .code(0)
        .says(&["Inside the calls", "pread64:", "samples", "share"]);
}
