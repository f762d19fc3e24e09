// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an operation's time goes, on this machine.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use hbench_results::decomposition::{Decomposition, Document};

fn hbench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbench"));
    command.args(words).stdin(Stdio::null());
    command.output().expect("hbench can be started")
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Whether `debox` is beside hbench and may measure; else the test is skipped.
fn may_observe(test: &str) -> bool {
    let debox = Path::new(env!("CARGO_BIN_EXE_hbench")).with_file_name("debox");
    let trial = Command::new(debox)
        .args(["run", "-o", "/dev/null", "--", "true"])
        .stdin(Stdio::null())
        .output();
    let may = trial.is_ok_and(|trial| trial.status.success());
    if !may {
        debox_skipped::skipped(&format!("{test}: no debox beside hbench that may measure"));
    }
    may
}

fn decomposed(names: &[&str]) -> Vec<Decomposition> {
    let mut words = vec![
        "decompose",
        "--rounds",
        "1",
        "--sample",
        "20ms",
        "--format",
        "json",
    ];
    words.extend(names);
    let output = hbench(&words);
    assert!(output.status.success(), "{}", said(&output));
    let document: Document = serde_json::from_slice(&output.stdout).expect("JSON");
    document.decompositions
}

/// How often a call is made is known, whatever the machine does meanwhile.
#[test]
fn calls_of_an_operation_are_counted() {
    if !may_observe("calls_of_an_operation_are_counted") {
        return;
    }
    let found = decomposed(&["call.null", "process.fork/small"]);
    let count = |of: &Decomposition, call: &str| {
        let rows = of.calls.iter().filter(|row| row.call == call);
        rows.map(|row| row.count).sum::<f64>()
    };
    let [null, fork] = &found[..] else {
        panic!("{found:?}");
    };
    assert!((count(null, "getppid") - 1.0).abs() < 0.01, "{null:?}");
    assert!(
        null.own.kernel_ns > 0.0 && null.own.user_ns > 0.0,
        "{null:?}"
    );
    assert!(null.observed_ns > null.undisturbed_ns, "{null:?}");
    for call in ["clone", "exit_group", "wait4"] {
        assert!((count(fork, call) - 1.0).abs() < 0.05, "{call}: {fork:?}");
    }
    assert!(
        fork.faults_minor > 1.0 && fork.others.on_cpu_ns() > 0.0,
        "{fork:?}"
    );
    let tree = fork.tree.as_ref().expect("samples, or functions");
    assert!(
        tree.calls.iter().all(|node| node.function != "openat"),
        "{tree:?}"
    );
    assert!(!fork.residuals.is_empty());
}

#[test]
fn without_debox_one_sentence_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let alone = directory.path().join("hbench");
    std::fs::copy(env!("CARGO_BIN_EXE_hbench"), &alone).expect("a copy");
    let output = Command::new(&alone)
        .args(["decompose", "call.null"])
        .env("PATH", directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("hbench can be started");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("no program debox") && said.trim_end().lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_page_is_one_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (result, html) = (path("result.parquet"), path("page.html"));
    let quick = ["--rounds", "2", "--sample", "1ms", "-o", &result];
    let run = hbench(&[&["run", "call.null", "unix.send-receive/1"][..], &quick].concat());
    assert!(run.status.success(), "{}", said(&run));
    let shown = hbench(&["show", &result, "--html", &html]);
    if said(&shown).contains("cannot draw a page") {
        return debox_skipped::skipped(&format!("a_page_is_one_file: {}", said(&shown)));
    }
    assert!(shown.status.success(), "{}", said(&shown));
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.contains("unix.send-receive/1") && page.contains("default-src 'none'"));
    let wrong = hbench(&["show", &result, "--html", &html, "--records", &result]);
    assert_eq!(wrong.status.code(), Some(125));
    assert!(
        said(&wrong).contains("hbench decompose -o"),
        "{}",
        said(&wrong)
    );
}
