// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor says what is so: it finds debox working where the other tests find it working, and
//! where it cannot work it names the obstacle, and what it could not find out, instead of failing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use debox_tests::debox_binary;
use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Finished;
use debox_tests::Scratch;
use serde_json::Value;

fn doctor() -> Debox {
    Debox::bare(["doctor", "--format", "json"])
}

/// The JSON of a run, after a check of what holds on any machine and for any user.
#[track_caller]
fn diagnosis(finished: &Finished) -> Value {
    assert!(!finished.stderr.contains("panicked"), "{finished}");
    let diagnosis: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("not JSON: {error}; {finished}"));
    assert_eq!(diagnosis["schema"], "debox.doctor/1");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    assert_eq!(diagnosis["kernel"], release.trim());
    let mut is_ok = true;
    for finding in diagnosis["findings"].as_array().expect("a list") {
        let text = |field: &str| finding[field].as_str().expect("a text").to_string();
        assert!(
            !text("need").is_empty() && !text("found").is_empty(),
            "{finding}"
        );
        match text("standing").as_str() {
            "met" => assert_eq!((text("cost"), text("remedy")), Default::default()),
            "unchecked" => assert_eq!(text("cost"), ""),
            "limits" | "unused" => assert_ne!(text("cost"), "", "{finding}"),
            "prevents" => {
                is_ok = false;
                assert_ne!(text("cost"), "", "{finding}");
            }
            other => panic!("an unknown standing, {other}"),
        }
    }
    assert_eq!(diagnosis["ok"], is_ok);
    diagnosis
}

#[track_caller]
fn standing<'a>(diagnosis: &'a Value, need: &str) -> &'a str {
    let findings = diagnosis["findings"].as_array().expect("a list");
    let finding = findings.iter().find(|finding| finding["need"] == need);
    let finding = finding.unwrap_or_else(|| panic!("no finding about {need} in {diagnosis:#}"));
    finding["standing"].as_str().expect("a text")
}

/// A copy of debox that any user can run, removed with the test.
struct PublicCopy(PathBuf);

impl PublicCopy {
    fn make(test: &str) -> Self {
        let name = format!("debox-doctor-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory for temporary files");
        let made = Self(directory);
        fs::set_permissions(&made.0, fs::Permissions::from_mode(0o755)).expect("own directory");
        fs::copy(debox_binary(), made.path()).expect("debox can be copied");
        made
    }

    fn path(&self) -> PathBuf {
        self.0.join("debox")
    }
}

impl Drop for PublicCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

#[test]
fn as_root_both_taps_work_and_the_trial_was_true() {
    let diagnosis = diagnosis(&doctor().finish().code(0));
    for need in ["privilege", "bpf() system call", "kernel tap", "user tap"] {
        assert_eq!(standing(&diagnosis, need), "met", "{need}");
    }
    assert_eq!(diagnosis["ok"], true);
}

#[test]
fn for_people_it_ends_with_the_verdict() {
    let finished = Debox::bare(["doctor"]).finish().code(0);
    let last = finished.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("debox works here"), "{finished}");
    assert_eq!(finished.stderr, "");
}

#[test]
fn without_root_it_says_what_needs_root() {
    let copy = PublicCopy::make("nobody");
    let finished = doctor().binary(&copy.path()).finish_under(&NOBODY).code(1);
    let seen = diagnosis(&finished);
    assert_eq!(standing(&seen, "privilege"), "prevents");
    for need in ["bpf() system call", "kernel tap", "user tap"] {
        assert_eq!(standing(&seen, need), "unchecked", "{need}");
    }
    // What any user can see is seen.
    for need in ["kernel types (BTF)", "kernel events", "kernel helpers"] {
        assert_eq!(standing(&seen, need), "met", "{need}");
    }
    let table = Debox::bare(["doctor"]).binary(&copy.path());
    let table = table.finish_under(&NOBODY).code(1);
    for words in ["does not work here: privilege", "sudo", "needs root"] {
        assert!(table.stdout.contains(words), "{words}: {table}");
    }
}

#[test]
fn two_capabilities_are_enough() {
    let copy = PublicCopy::make("capable");
    let capable = ["--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon"];
    let wrap = [&NOBODY[..], &capable].concat();
    let seen = diagnosis(&doctor().binary(&copy.path()).finish_under(&wrap).code(0));
    assert_eq!(standing(&seen, "kernel tap"), "met");
    assert_eq!(standing(&seen, "programs of other users"), "limits");
}

/// Capabilities in a user namespace look like privilege and are none for BPF; in a PID namespace
/// the probes would look for processes under numbers that are not theirs.
#[test]
fn in_a_container_it_says_to_go_outside() {
    for (test, options, need) in [
        (
            "user namespace",
            &["--user", "--map-root-user"][..],
            "privilege",
        ),
        (
            "PID namespace",
            &["--pid", "--fork", "--mount-proc"],
            "process numbers",
        ),
    ] {
        let wrap = [&["unshare"][..], options].concat();
        let tried = Command::new(wrap[0]).args(&wrap[1..]).arg("true").output();
        if !tried.is_ok_and(|output| output.status.success()) {
            skipped(test, "this machine does not allow one");
            continue;
        }
        let finished = doctor().finish_under(&wrap).code(1);
        let seen = diagnosis(&finished);
        assert_eq!(standing(&seen, need), "prevents", "{test}");
        assert!(
            finished.stdout.contains("outside the container"),
            "{finished}"
        );
    }
}

#[test]
fn another_session_is_named() {
    let other = Debox::command("/bin/sleep").args(["30"]).spawn();
    other.await_child("sleep");
    // Not by way of the harness, in which one debox runs at a time.
    let output = Command::new(debox_binary())
        .args(["doctor", "--format", "json"])
        .output()
        .expect("debox runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(standing(&seen, "no other session"), "limits");
    let pid = other.pid().to_string();
    assert!(text.contains(&pid), "process {pid} is not in {text}");
}

#[test]
fn wrong_usage() {
    for arguments in [
        &["doctor", "now"][..],
        &["doctor", "--format", "yaml"],
        &["completions"],
        &["completions", "no-such-shell"],
    ] {
        Debox::bare(arguments).finish().code(2).says(&["--help"]);
    }
}

#[test]
fn manual_pages_and_completions_come_with_it() {
    let scratch = Scratch::new();
    let directory = scratch.file("man");
    let arguments = ["man".as_ref(), directory.as_os_str()];
    Debox::bare(arguments).finish().code(0);
    for page in ["debox.1", "debox-run.1", "debox-attach.1", "debox-doctor.1"] {
        let text = fs::read_to_string(directory.join(page)).expect(page);
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    Debox::bare(["man", "/proc/no/such/place"])
        .finish()
        .code(125)
        .says(&["manual pages", "/proc/no/such/place"]);
    for shell in ["bash", "zsh", "fish"] {
        let script = Debox::bare(["completions", shell]).finish().code(0).stdout;
        for subcommand in ["run", "attach", "doctor"] {
            assert!(
                script.contains(subcommand),
                "{subcommand} for {shell}: {script}"
            );
        }
    }
}
