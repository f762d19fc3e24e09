// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broker's systemd unit: how much it leaves open, and that the broker needs no more.
//! `scripts/guests --unit` boots it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::time::Duration;

use debox_tests::brokered::Place;
use debox_tests::brokered::USER;
use debox_tests::debox_binary;
use debox_tests::require_root;
use debox_tests::skipped;
use debox_tests::wait_for;
use debox_tests::Scratch;

/// The most that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "25";

fn unit() -> String {
    let file = "../../../scripts/debox-broker.service.in";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    // As `make install` writes it.
    text.expect("the unit").replace("@PREFIX@", "/usr/local")
}

fn systemd_analyze(arguments: &[&str]) -> Option<String> {
    let done = Command::new("systemd-analyze")
        .args(arguments)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}{why}");
    Some(said)
}

#[test]
fn the_unit_leaves_little_open() {
    let scratch = Scratch::new();
    let file = scratch.file("debox-broker.service");
    fs::write(&file, unit()).expect("scratch is writable");
    let file = file.to_str().expect("a path");
    let options = [
        "security",
        "--offline=true",
        "--no-pager",
        "--threshold",
        EXPOSURE_MAX,
    ];
    match systemd_analyze(&[&options[..], &[file]].concat()) {
        Some(said) => println!("{said}"),
        None => skipped(
            "the_unit_leaves_little_open",
            "systemd-analyze is not installed",
        ),
    }
}

/// System calls that the lines of SystemCallFilter= allow, in order.
fn allowed(unit: &str) -> Option<BTreeSet<String>> {
    let mut allowed = calls_of("@default")?;
    let lines = unit.lines();
    for words in lines.filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (forbids, words) = match words.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, words),
        };
        for word in words.split_whitespace() {
            let named = match word.starts_with('@') {
                true => calls_of(word)?,
                false => BTreeSet::from([word.to_string()]),
            };
            match forbids {
                true => allowed.retain(|call| !named.contains(call)),
                false => allowed.extend(named),
            }
        }
    }
    Some(allowed)
}

fn calls_of(group: &str) -> Option<BTreeSet<String>> {
    let text = systemd_analyze(&["syscall-filter", group])?;
    let mut calls = BTreeSet::new();
    for line in text.lines().skip(1).map(str::trim) {
        match line.starts_with('@') {
            true => calls.extend(calls_of(line)?),
            false if line.starts_with('#') || line.is_empty() => {}
            false => {
                calls.insert(line.to_string());
            }
        }
    }
    Some(calls)
}

/// A program under strace, which ends with it.
struct Traced(Child);

impl Drop for Traced {
    fn drop(&mut self) {
        let strace = self.0.id();
        let children = format!("/proc/{strace}/task/{strace}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        for child in children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            // SAFETY: strace has not waited for its child, as it runs.
            unsafe { libc::kill(child, libc::SIGTERM) };
        }
        let _ = self.0.wait();
    }
}

/// With the unit's capabilities and no others, the broker serves users, and makes no call that the unit forbids.
#[test]
fn the_broker_needs_no_more_than_the_unit_gives() {
    require_root();
    let unit = unit();
    let Some(allowed) = allowed(&unit) else {
        skipped(
            "the_broker_needs_no_more_than_the_unit_gives",
            "systemd-analyze is not installed",
        );
        return;
    };
    let capabilities = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("a set");
    let mut bounding = "-all".to_string();
    for name in capabilities.split_whitespace() {
        let name = name.trim_start_matches("CAP_").to_lowercase();
        bounding.push_str(&format!(",+{name}"));
    }
    let place = Place::new();
    let (socket, trace) = (place.socket(), place.path().join("trace"));
    let broker = Command::new("strace")
        .args(["-f", "-qq", "-e", "signal=none", "-o"])
        .arg(&trace)
        .args(["setpriv", "--no-new-privs", "--inh-caps=-all"])
        .arg(format!("--bounding-set={bounding}"))
        .arg(debox_binary())
        .arg("broker")
        .arg("--socket")
        .arg(&socket)
        .spawn()
        .expect("strace can be executed");
    let traced = Traced(broker);
    let listens = wait_for(Duration::from_secs(60), || socket.exists());
    let debox = place.path().join("debox");
    let runs = [
        &[
            "run",
            "--detail",
            "callsites,irq,io",
            "--",
            "ls",
            "-R",
            "/usr/include/linux",
        ][..],
        &["run", "--tap", "user", "--", "ls", "/"],
    ];
    let runs = runs.map(|arguments| {
        Command::new(&debox)
            .args(arguments)
            .env("DEBOX_BROKER", &socket)
            .current_dir("/")
            .uid(USER)
            .gid(USER)
            .output()
            .expect("debox can be executed")
    });
    drop(traced);
    assert!(listens, "the broker does not listen");
    for done in runs {
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        assert!(said.contains("through the broker"), "{said}");
    }
    let trace = fs::read_to_string(&trace).expect("strace wrote it");
    // The last program that was executed is the broker.
    let (_, of_broker) = trace.rsplit_once("execve(").expect("it was executed");
    let called: BTreeSet<&str> = of_broker
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.split_once('('))
        .map(|(name, _)| name)
        .collect();
    assert!(
        called.contains("bpf") && called.contains("recvmsg"),
        "{called:?}"
    );
    let forbidden: Vec<&&str> = called
        .iter()
        .filter(|name| !allowed.contains(**name))
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
}
