// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flash/bench/stages.py says of a measurement.

use std::fs;
use std::process::Command;

use serde_json::{json, Value};

/// The exit status, and what is written to both streams.
fn judge(call: &str, class: &str) -> (Option<i32>, String) {
    let mut flash = Command::new(env!("CARGO_BIN_EXE_flash"));
    let listed = flash.args(["stages", "--format", "json"]).output();
    let listed = listed.expect("it can be executed").stdout;
    let known: Value = serde_json::from_slice(&listed).expect("JSON");
    let load =
        json!({ "per_second": 200.0, "failed": 0, "p50_ns": 1, "p99_ns": 2_000_000, "max_ns": 3 });
    let wait = json!({
        "call": call, "label": "page read", "class": class, "count": 7, "p99_ns": 1, "max_ns": 20_500_000, "sum_ns": 1,
    });
    let found = json!({
        "known": known["stages"], "service": "5ms",
        "stages": [{ "stage": "no-mmap", "user": null, "doubts": [], "waits": [wait], "hot": load, "cold": load }],
        "applications": [{
            "size": 200, "stage": "no-mmap", "loop_ns": 31_250, "loop_from_ns": 1, "loop_to_ns": 2, "processes_ns": 3,
            "kernel_ns": 8000, "reads_ns": 1600, "reads": 1,
        }],
        "scripts": [{ "stage": "fd-passing", "calls": [{ "call": "clone", "count": 3, "p50_ns": 1, "max_ns": 2 }] }],
    });
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("stages.json");
    fs::write(&file, found.to_string()).expect("room");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/stages.py");
    let done = Command::new("python3")
        .args([script, "--from"])
        .arg(file)
        .output();
    let done = done.expect("python3 can be executed");
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(text).expect("text"))
}

#[test]
fn a_wait_that_a_stage_does_not_name_is_a_failure() {
    let (status, text) = judge("sendfile", "disk");
    assert_eq!(status, Some(0), "{text}");
    for part in [
        "no-mmap  root  sendfile  page read   7",
        "20.5",
        "1.8",
        "31.2",
        "20 %",
        "where 2026 differs",
    ] {
        assert!(
            text.to_lowercase().contains(&part.to_lowercase()),
            "{part}: {text}"
        );
    }
    let (status, text) = judge("openat2", "disk");
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("no-mmap as root: openat2 waited 7 times"),
        "{text}"
    );
    assert_eq!(judge("openat2", "lock").0, Some(0));
}
