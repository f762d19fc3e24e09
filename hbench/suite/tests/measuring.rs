// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, on this machine.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use hbench::benchmarks::cases;
use hbench_results::file::{self, Recorded};
use hbench_results::meta::State;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

fn hbench(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbench"));
    command.args(words).stdin(Stdio::null());
    command
}

/// A run that takes as little time as it can, into a file.
fn quick(rounds: &str, names: &[&str]) -> (Command, TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.parquet");
    let mut command = hbench(&["run", "--sample", "1ms", "--rounds", rounds, "--directory"]);
    command
        .arg(directory.path())
        .arg("-o")
        .arg(&path)
        .args(names);
    (command, directory, path)
}

fn output(command: &mut Command) -> Output {
    command.output().expect("hbench can be started")
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[track_caller]
fn result(mut command: Command, path: &Path) -> Recorded {
    let output = output(&mut command);
    assert!(output.status.success(), "{}", said(&output));
    file::read(path).expect("a result")
}

fn reason(recorded: &Recorded, name: &str) -> String {
    let mut left_out = recorded.meta.left_out.iter();
    let found = left_out.find(|left_out| left_out.benchmark == name);
    let measured = recorded
        .samples
        .iter()
        .any(|sample| sample.benchmark == name);
    assert!(!measured, "{name} was measured");
    found
        .unwrap_or_else(|| panic!("{name} is not named"))
        .reason
        .clone()
}

#[test]
fn every_benchmark_is_measured_or_says_why_not() {
    let (command, directory, path) = quick("1", &["--all"]);
    let recorded = result(command, &path);
    let all = cases();
    for case in &all {
        let name = case.name();
        let measured = recorded
            .samples
            .iter()
            .filter(|sample| sample.benchmark == name);
        let left_out = recorded
            .meta
            .left_out
            .iter()
            .find(|one| one.benchmark == name);
        assert_eq!(
            measured.count() + usize::from(left_out.is_some()),
            1,
            "{name}"
        );
        if let Some(left_out) = left_out {
            debox_skipped::skipped(&format!("{name}: {}", left_out.reason));
        }
    }
    assert!(
        recorded.samples.len() > all.len() * 3 / 4,
        "{:?}",
        recorded.meta.left_out
    );
    // Some are right only if the machine is a real one.
    let of = |name: &str| {
        let sample = recorded
            .samples
            .iter()
            .find(|sample| sample.benchmark == name);
        sample.map(|sample| sample.operation_ns)
    };
    let call = of("call.null").expect("it needs nothing");
    assert!((10.0..1e6).contains(&call), "{call}");
    let add = of("cpu.operation/integer-add").expect("it needs nothing");
    assert!((0.05..100.0).contains(&add), "{add}");
    // What was made for it is gone.
    let left = fs::read_dir(directory.path()).expect("a directory").count();
    assert_eq!(left, 1, "only the result is there");
}

#[test]
fn what_answers_to_other_suites_is_measured_by_name() {
    let listed = said(&output(&mut hbench(&["list", "select"])));
    assert!(listed.contains("by name     1000, tcp-10"), "{listed}");
    let (command, _directory, path) = quick("1", &["select.descriptors/1", "memory.strided"]);
    let recorded = result(command, &path);
    let names: Vec<&str> = recorded.samples.iter().map(|one| &*one.benchmark).collect();
    for name in [
        "select.descriptors/10",
        "select.descriptors/1000",
        "memory.strided/copy-256K",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let both = output(&mut hbench(&["run", "--all", "call.null"]));
    assert_eq!(both.status.code(), Some(2), "{}", said(&both));
}

#[test]
fn a_table_and_three_documents_come_from_one_file() {
    let (mut command, _directory, path) = quick("3", &["memory", "call", "process"]);
    let shown = said(&output(&mut command));
    assert!(
        shown.contains("call.null") && shown.contains("GB/s"),
        "{shown}"
    );
    let path = path.to_str().expect("text");
    for (words, schema, has) in [
        (
            vec!["show", path],
            include_str!("../../schema/hbench-summary-1.json"),
            "call.null",
        ),
        (
            vec!["compare", path, path],
            include_str!("../../schema/hbench-comparison-1.json"),
            "no difference",
        ),
        (
            vec!["explain", path],
            include_str!("../../schema/hbench-explanation-1.json"),
            "residual",
        ),
    ] {
        let text = output(&mut hbench(&words));
        assert!(
            text.status.success() && said(&text).contains(has),
            "{}",
            said(&text)
        );
        let printed = output(hbench(&words).args(["--format", "json"]));
        let printed: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
        let mut schema: Value = serde_json::from_str(schema).expect("JSON");
        // The description has a schema and a test of its own.
        if let Some(meta) = schema.pointer_mut("/properties/meta") {
            *meta = Value::Bool(true);
        }
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let errors: Vec<String> = validator
            .iter_errors(&printed)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn bad_input_is_one_sentence_with_its_remedy() {
    for (words, remedy) in [
        (&["run", "nosuch"][..], "hbench list"),
        (
            &["run", "call.null", "--directory", "/nonexistent"],
            "--directory",
        ),
        (
            &["run", "call.null", "-o", "/nonexistent/file"],
            "cannot write",
        ),
        (&["show", "/etc/passwd"], "no Parquet file"),
        (&["show", "/nonexistent"], "cannot open"),
        (
            &["compare", "/etc/passwd", "/etc/passwd"],
            "no Parquet file",
        ),
        (
            &["compare", "--live", "nosuchcommand", "env", "call.null"],
            "nosuchcommand",
        ),
    ] {
        let output = output(&mut hbench(words));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {said}");
        assert!(
            said.contains(remedy) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
}

/// Figures that have been measured are shown although the file cannot take them.
#[test]
fn a_file_that_cannot_be_written_costs_no_figures() {
    let mut command = hbench(&["run", "call.null", "--rounds", "1", "--sample", "1ms"]);
    let output = output(command.args(["-o", "/dev/full"]));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("cannot write /dev/full"), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("call.null"), "{printed}");
}

/// Starts a run that would not end, and waits until its first round is in the file.
fn endless() -> (std::process::Child, TempDir, PathBuf) {
    let (mut command, directory, path) = quick("10000", &["call.null"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("hbench can be started");
    let begun = Instant::now();
    // Before the first round, a file is there for a moment to see whether it can be written.
    while file::read(&path).is_err() {
        assert!(begun.elapsed() < PATIENCE, "there is no file");
        std::thread::yield_now();
    }
    (child, directory, path)
}

#[test]
fn an_interrupted_run_keeps_what_is_complete() {
    let (mut child, directory, path) = endless();
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
    let recorded = file::read(&path).expect("a result");
    assert_eq!(recorded.meta.state, State::Interrupted);
    assert!(recorded.meta.rounds_done >= 1 && !recorded.samples.is_empty());
    assert_eq!(
        fs::read_dir(directory.path()).expect("a directory").count(),
        1
    );
}

#[test]
fn a_killed_run_has_left_a_whole_file() {
    let (mut child, _directory, path) = endless();
    child.kill().expect("it runs");
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    let recorded = file::read(&path).expect("a result");
    assert_eq!(recorded.meta.state, State::Running);
    assert!(!recorded.samples.is_empty());
    let shown = said(&output(hbench(&["show"]).arg(&path)));
    assert!(shown.contains("The run did not end."), "{shown}");
}

#[test]
fn one_cpu_is_enough() {
    let (mut command, _directory, path) = quick("1", &["pipe.latency"]);
    // SAFETY: only a system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set));
            libc::CPU_ZERO(&mut set);
            libc::CPU_SET(first.unwrap_or(0), &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        })
    };
    let recorded = result(command, &path);
    assert_eq!(recorded.samples.len(), 1);
    assert!(reason(&recorded, "pipe.latency/two-cpus").contains("second CPU"));
}

#[test]
fn no_space_for_files_leaves_the_rest() {
    let (mut command, _directory, path) = quick("1", &["call.null", "file.reread", "process.exec"]);
    // SAFETY: only a system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 200_000,
                rlim_max: 200_000,
            };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        })
    };
    let recorded = result(command, &path);
    assert!(recorded
        .samples
        .iter()
        .any(|sample| sample.benchmark == "call.null"));
    let reason = reason(&recorded, "file.reread/4K");
    assert!(
        reason.contains("write a temporary file") || reason.contains("signal 25"),
        "{reason}"
    );
}

#[test]
fn forbidden_system_calls_are_named() {
    let (mut command, _directory, path) = quick("1", &["call.null", "io-uring", "futex.wake-none"]);
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            forbid(
                libc::SYS_io_uring_setup,
                libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            )
        })
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(|| forbid(libc::SYS_getppid, libc::SECCOMP_RET_KILL_PROCESS)) };
    let recorded = result(command, &path);
    assert!(reason(&recorded, "io-uring/nop").contains("io_uring_setup: Operation not permitted"));
    assert!(
        reason(&recorded, "call.null").contains("forbidden"),
        "{recorded:?}"
    );
    assert_eq!(recorded.meta.environment.seccomp, Some(2));
    assert_eq!(recorded.samples.len(), 1);
}

/// A filter for one call; all others are allowed.
fn forbid(call: i64, action: u32) -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [
        libc::sock_filter {
            code: LOAD,
            jt: 0,
            jf: 0,
            k: 0,
        },
        // The next step if it is the call, the one after it otherwise.
        libc::sock_filter {
            code: IS_EQUAL,
            jt: 0,
            jf: 1,
            k: call as u32,
        },
        libc::sock_filter {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: action,
        },
        libc::sock_filter {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        },
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

#[test]
fn a_slower_system_call_is_named_and_memory_is_not() {
    let strace = Command::new("strace").arg("-V").output();
    if !strace.is_ok_and(|output| output.status.success()) {
        debox_skipped::skipped("strace is not installed");
        return;
    }
    let mut command = hbench(&["compare", "--live", "env", "strace -f -o /dev/null"]);
    command.args(["call.null", "cpu.operation/integer-multiply"]);
    command.args(["--rounds", "7", "--sample", "10ms", "--format", "json"]);
    let output = output(&mut command);
    let printed: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let differences = printed["differences"].as_array().expect("a list");
    let of = |name: &str| {
        let found = differences.iter().find(|one| one["benchmark"] == name);
        found.unwrap_or_else(|| panic!("{name} is not there: {printed}"))
    };
    let call = of("call.null");
    assert_eq!(call["verdict"], "slower", "{call}");
    assert!(
        call["ratio"].as_f64().is_some_and(|ratio| ratio > 5.0),
        "{call}"
    );
    // The headline is about what changed, so the change is the first row.
    assert_eq!(differences[0]["benchmark"], "call.null");
}

#[test]
fn all_cpus_measure_at_the_same_time() {
    let (mut command, _directory, path) = quick("2", &["memory.read/16K", "pipe.latency/two-cpus"]);
    // So different that they are ready, and end, at different times.
    command.args([
        "--parallel",
        "process.exec/dynamic",
        "file.create/4K",
        "context-switch/2-processes-0K",
    ]);
    let recorded = result(command, &path);
    let instances = recorded.meta.instances as usize;
    if instances < 2 {
        debox_skipped::skipped("there is one CPU");
        return;
    }
    // Each ran until the last one had its sample, so none are dropped.
    assert_eq!(recorded.samples.len(), 2 * 4 * instances);
    assert_eq!(
        recorded.meta.samples_dropped, 0,
        "{:?}",
        recorded.meta.left_out
    );
    let cpus: std::collections::BTreeSet<_> = recorded.samples.iter().map(|one| one.cpu).collect();
    assert_eq!(cpus.len(), instances);
    assert!(reason(&recorded, "pipe.latency/two-cpus").contains("second CPU"));
}
