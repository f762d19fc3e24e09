// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of real programs, and predictions from them. Recording needs `debox` beside hbench, and root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hbench_results::application::Application;
use hbench_results::vectors;
use serde_json::Value;
use tempfile::TempDir;

fn hbench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbench"));
    command.stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("hbench can be started")
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[track_caller]
fn done(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The recorder, if it may record.
fn debox() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_hbench")).with_file_name("debox");
    // SAFETY: no memory is passed.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root && beside.exists() {
        return Some(beside);
    }
    debox_skipped::skipped(
        "vectors of recorded programs: they need root, and debox built beside hbench",
    );
    None
}

/// A machine's result with what predictions depend on, as fast as it can be had.
fn machine(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("here.parquet");
    let benchmarks = [
        "call.null",
        "cpu.code",
        "memory.read/16K",
        "memory.latency/256K",
        "pipe.bandwidth/4K",
        "file.reread/4K",
    ];
    done(
        hbench()
            .args(["run", "--sample", "1ms", "--rounds", "3", "--directory"])
            .arg(directory.path())
            .arg("-o")
            .arg(&path)
            .args(benchmarks),
    );
    path
}

/// Calls and bytes of a primitive, of one class of sizes or of all.
fn sum(application: &Application, primitive: &str, size: Option<u64>) -> (u64, u64) {
    let is_asked = |own: Option<u64>| size.is_none() || own == size;
    let components = application.components.iter();
    components
        .filter(|one| one.primitive == primitive && is_asked(one.size))
        .fold((0, 0), |sum, one| (sum.0 + one.calls, sum.1 + one.bytes))
}

#[test]
fn a_recorded_command_is_counted_and_predicted() {
    let Some(debox) = debox() else {
        return;
    };
    const BLOCKS: u64 = 300;
    let directory = tempfile::tempdir().expect("a directory");
    let place = |name: &str| directory.path().join(name);
    let here = machine(&directory);
    fs::write(place("data"), vec![7; 4096 * BLOCKS as usize]).expect("room");
    let script = format!(
        "dd if={} bs=4k count={BLOCKS} status=none | cat",
        place("data").display()
    );
    let vector = place("app.vec");
    done(
        hbench()
            .args(["vector", "--runs", "2", "--debox"])
            .arg(debox)
            .arg("--on")
            .arg(&here)
            .arg("-o")
            .arg(&vector)
            .args(["--", "sh", "-c", &script]),
    );
    let made = vectors::application(&vector).expect("a vector");
    assert_eq!(made.recording.lost, 0);
    // The shell may run the last program itself.
    assert!(
        (2..=3).contains(&made.recording.processes),
        "{:?}",
        made.recording
    );
    assert_eq!(
        sum(&made, "pipe.write", Some(4096)),
        (BLOCKS, BLOCKS * 4096)
    );
    assert_eq!(sum(&made, "pipe.read", None).1, BLOCKS * 4096);
    let (reads, bytes) = sum(&made, "file.read", Some(4096));
    assert!((BLOCKS..BLOCKS + 30).contains(&reads), "{reads}");
    assert!(bytes >= BLOCKS * 4096 && bytes <= reads * 4096, "{bytes}");
    let runs = &made.runs;
    assert!(
        runs.len() == 2 && runs.iter().all(|run| run.faults_minor > 50),
        "{runs:?}"
    );

    let printed = done(
        hbench()
            .arg("predict")
            .args([&vector, &here])
            .args(["--format", "json"]),
    );
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    check_schema(
        &printed,
        include_str!("../../schema/hbench-prediction-1.json"),
    );
    // On its own machine it takes what it took.
    let same = |of: &Value| of.as_f64().expect("a number");
    let ratio = same(&printed["machines"][0]["elapsed_ns"]) / same(&printed["elapsed_ns"]);
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    let shown = done(hbench().arg("predict").args([&vector, &here]).arg("--all"));
    assert!(shown.contains("No benchmark stands for"), "{shown}");

    let contrast = done(
        hbench()
            .arg("explain")
            .args([&here, &here, &vector])
            .args(["--format", "json"]),
    );
    let contrast: Value = serde_json::from_str(&contrast).expect("JSON");
    check_schema(
        &contrast,
        include_str!("../../schema/hbench-contrast-1.json"),
    );
    let parts = contrast["parts"].as_array().expect("a list");
    assert!(
        parts.iter().all(|part| part["a_ns"] == part["b_ns"]),
        "{parts:?}"
    );
}

fn check_schema(printed: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(printed)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn calls_are_counted_one_by_one() {
    let Some(debox) = debox() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let calls = |count: u64| {
        let recording = directory.path().join(format!("{count}.parquet"));
        let recorded = Command::new(&debox)
            .args(["record", "-o"])
            .arg(&recording)
            .args([
                "--",
                env!("CARGO_BIN_EXE_hbench"),
                "calls",
                &count.to_string(),
            ])
            .stdin(Stdio::null())
            .output()
            .expect("debox can be started");
        assert!(recorded.status.success(), "{}", said(&recorded));
        let vector = directory.path().join(format!("{count}.vec"));
        let shown = output(
            hbench()
                .arg("vector")
                .arg(&recording)
                .arg("-o")
                .arg(&vector),
        );
        assert!(
            said(&shown).contains("include what recording took"),
            "{}",
            said(&shown)
        );
        let made = vectors::application(&vector).expect("a vector");
        assert!(made.tap.is_none() && made.machine.is_none());
        sum(&made, "call", None).0
    };
    // Whatever else a program calls when it starts.
    assert_eq!(calls(5000) - calls(1000), 4000);
}

#[test]
fn bad_input_is_one_sentence_with_its_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let damaged = directory.path().join("damaged.vec");
    fs::write(&damaged, "{\"schema\": \"hbench.machine/1\"}").expect("room");
    let damaged = damaged.to_str().expect("text");
    for (words, remedy) in [
        (&["vector"][..], "a command after --"),
        (&["vector", "/etc/passwd"], "it is no vector"),
        (&["vector", damaged], "damaged"),
        (&["vector", "/nonexistent"], "cannot open"),
        (&["vector", "--on", damaged, "--", "true"], "damaged"),
        (
            &["vector", "-o", "/nonexistent/a", "--", "true"],
            "cannot write",
        ),
        (
            &["vector", "--debox", "/nonexistent", "--", "true"],
            "no program",
        ),
        (
            &["vector", "--debox", "/bin/false", "--", "true"],
            "cannot record",
        ),
        (&["predict", damaged, damaged], "damaged"),
        (&["explain", damaged, damaged, damaged], "damaged"),
    ] {
        let output = output(hbench().args(words));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {said}");
        assert!(
            said.contains(remedy) && said.trim_end().lines().count() == 1,
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_command_that_fails_makes_no_vector() {
    let Some(debox) = debox() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let vector = directory.path().join("a.vec");
    let failed = output(
        hbench()
            .args(["vector", "--debox"])
            .arg(debox)
            .arg("-o")
            .arg(&vector)
            .args(["--", "sh", "-c", "exit 3"]),
    );
    assert_eq!(failed.status.code(), Some(125));
    assert!(
        said(&failed).contains("ended with status 3"),
        "{}",
        said(&failed)
    );
    assert!(!vector.exists());
}
