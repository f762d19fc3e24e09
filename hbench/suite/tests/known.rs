// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known answers: a call is delayed on purpose, and hbench finds by how much and which one.

use std::path::Path;
use std::process::{Command, Stdio};

use hbench_results::file;
use hbench_results::machine::Machine;
use serde_json::Value;

/// Other work on the machine may have its turn once.
const TRIES: usize = 3;
const DELAY_NS: f64 = 2e6;
/// What a machine's vector needs, and the call beside the delayed one.
const BENCHMARKS: &[&str] = &[
    "call.null",
    "cpu.code",
    "memory.read/16K",
    "memory.latency/256K",
    "file.fstat",
    "file.open/hot",
    "file.stat/hot",
    "file.reread/4K",
    "file.rewrite/4K",
];

fn hbench(words: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbench"));
    let output = command.args(words).stdin(Stdio::null()).output();
    let output = output.expect("hbench can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    output.stdout
}

fn measured(directory: &Path, name: &str, under: &str) -> (String, Machine) {
    let path = directory.join(name);
    let path = path.to_str().expect("UTF-8");
    let of = directory.to_str().expect("UTF-8");
    let words = [
        "run",
        "--sample",
        "1ms",
        "--rounds",
        "3",
        "--directory",
        of,
        "-o",
        path,
        "--under",
        under,
    ];
    hbench(&[&words[..], BENCHMARKS].concat());
    let recorded = file::read(Path::new(path)).expect("a result");
    (path.to_string(), Machine::of(&recorded))
}

#[test]
fn a_delayed_call_moves_by_its_delay_and_is_named() {
    // A tracer that stops one call alone, and so leaves others as they are.
    let delay = "strace -f -qq -o /dev/null --seccomp-bpf -e trace=openat -e inject=openat:delay_enter=2000";
    let can_delay = Command::new("sh")
        .args(["-c", &format!("exec {delay} true")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !can_delay.is_ok_and(|status| status.success()) {
        debox_skipped::skipped("a delayed call: it needs strace 5.3, and permission to trace");
        return;
    }
    let mut tries = (0..TRIES).map(|_| delayed(delay));
    let first = tries.next().expect("one");
    if let Err(what) = &first {
        assert!(tries.any(|result| result.is_ok()), "{what}");
    }
}

/// Measures without the delay and with it, and says which figure is not as it must be.
fn delayed(delay: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let (a, plain) = measured(directory.path(), "plain.parquet", "env");
    let (b, slowed) = measured(directory.path(), "slowed.parquet", delay);
    let moved = |name: &str| slowed.units[name].ns - plain.units[name].ns;
    let open = moved("file.open/hot");
    if !(DELAY_NS..5.0 * DELAY_NS).contains(&open) {
        return Err(format!("file.open/hot moved by {open} ns"));
    }
    for other in ["call.null", "file.fstat", "file.stat/hot"] {
        if moved(other).abs() >= DELAY_NS / 20.0 {
            return Err(format!("{other} moved by {} ns", moved(other)));
        }
    }
    let application = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../schema/examples/application.vec"
    );
    let printed = hbench(&[
        "explain",
        &a,
        &b,
        application,
        "--on",
        &a,
        "--format",
        "json",
    ]);
    let contrast: Value = serde_json::from_slice(&printed).expect("JSON");
    // The example's waits for the CPU are scaled by all of its work, and so by the opens, too.
    let parts = contrast["parts"].as_array().expect("parts");
    let mut names = parts.iter().filter_map(|part| part["name"].as_str());
    let first = names.find(|name| !name.starts_with("waiting"));
    match first {
        Some("file.open") => Ok(()),
        _ => Err(format!("another part comes first: {contrast}")),
    }
}
