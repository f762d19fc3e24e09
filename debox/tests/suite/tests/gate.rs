// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several sessions at once: one set of programs at the tracepoints, and right numbers in each session.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use debox_tests::check_report;
use debox_tests::debox_binary;
use debox_tests::require_root;
use debox_tests::wait_for;
use debox_tests::Exclusive;
use debox_tests::KernelObject;
use debox_tests::Scratch;
use serde_json::Value;

/// A session that is there until it is dropped, with its command.
struct Session(Child);

impl Session {
    fn start(options: &[&str]) -> Self {
        let debox = Command::new(debox_binary())
            .arg("run")
            .args(options)
            .args(["--", "/bin/sleep", "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let session = Self(debox.expect("debox starts"));
        let runs = wait_for(Duration::from_secs(20), || session.command().is_some());
        assert!(runs, "sleep never ran under debox");
        session
    }

    /// The process of the command, once it has been executed.
    fn command(&self) -> Option<i32> {
        let pid = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let child = children.split_whitespace().next()?.parse().ok()?;
        let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        (comm.trim_end() == "sleep").then_some(child)
    }

    fn held(&self) -> BTreeSet<KernelObject> {
        KernelObject::held_by(self.0.id() as i32)
    }

    fn links(&self) -> BTreeSet<KernelObject> {
        let mut held = self.held();
        held.retain(|object| matches!(object, KernelObject::Link(_)));
        held
    }

    /// Ends the command, and so debox.
    fn end(mut self) {
        self.end_command();
        self.0.wait().expect("own child");
    }

    fn end_command(&self) {
        if let Some(command) = self.command() {
            // SAFETY: the process is debox's child, which waits for it.
            unsafe { libc::kill(command, libc::SIGKILL) };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_command();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until_gone(objects: impl IntoIterator<Item = KernelObject>) {
    for object in objects {
        let is_gone = wait_for(Duration::from_secs(10), || !object.exists());
        assert!(is_gone, "{object:?} is left");
    }
}

#[test]
fn more_sessions_attach_nothing_more() {
    require_root();
    let _alone = Exclusive::take();
    let first = Session::start(&[]);
    let attached = first.links();
    assert!(!attached.is_empty());
    let others: Vec<Session> = (0..4).map(|_| Session::start(&[])).collect();
    for other in &others {
        assert_eq!(other.links(), attached);
    }
    // The session that came first may go first.
    first.end();
    for link in &attached {
        assert!(link.exists(), "{link:?}");
    }
    others.into_iter().for_each(Session::end);
    wait_until_gone(attached);
}

/// Sessions have 32 places at a gate. Those beyond have a second one, which costs everyone as much once more.
#[test]
fn the_session_beyond_32_has_another_gate() {
    require_root();
    let machine = std::fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
    let line = machine
        .lines()
        .find(|line| line.starts_with("MemAvailable:"));
    let free = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    if free.is_none_or(|kilobytes| kilobytes < 6 << 20) {
        let reason = "33 sessions take up to 3 GB, and there are less than 6";
        return debox_tests::skipped("the_session_beyond_32_has_another_gate", reason);
    }
    let _alone = Exclusive::take();
    let sessions: Vec<Session> = (0..34).map(|_| Session::start(&[])).collect();
    let links: Vec<BTreeSet<KernelObject>> = sessions.iter().map(Session::links).collect();
    let (first, last) = (&links[0], &links[33]);
    assert!(last.is_disjoint(first) && !last.is_empty(), "{links:?}");
    // Perhaps fewer, if somebody else measures on this machine.
    let at_first = links.iter().filter(|some| *some == first).count();
    assert!((20..=32).contains(&at_first), "{links:?}");
    let at_last = links.iter().filter(|some| *some == last).count();
    assert_eq!(at_first + at_last, 34, "{links:?}");
    sessions.into_iter().for_each(Session::end);
    wait_until_gone(first.iter().chain(last).copied());
}

#[test]
fn a_session_with_more_details_adds_what_is_missing() {
    require_root();
    let _alone = Exclusive::take();
    let plain = Session::start(&[]);
    let before = plain.links();
    let detailed = Session::start(&["--detail", "sleeps,irq"]);
    let all = detailed.links();
    assert!(all.is_superset(&before), "{all:?} {before:?}");
    let added: Vec<KernelObject> = all.difference(&before).copied().collect();
    assert_eq!(added.len(), 12, "two for each of six kinds of interrupts");
    detailed.end();
    wait_until_gone(added);
    plain.end();
}

fn report(path: &Path) -> Value {
    let text = std::fs::read(path).expect("a report");
    let report = serde_json::from_slice(&text).expect("JSON");
    let broken = check_report(&report, None);
    assert!(broken.is_empty(), "{broken:#?}");
    report
}

fn calls_of_shell(report: &Value) -> Vec<u64> {
    let threads = report["threads"].as_array().expect("a table");
    let shells = threads.iter().filter(|thread| thread["comm"] == "sh");
    shells
        .map(|thread| thread["calls"].as_u64().expect("a number"))
        .collect()
}

/// One program under three sessions: its sleeps are as many for each of them, and each kept the
/// rules of a report.
#[test]
fn each_of_several_sessions_sees_every_call_once() {
    require_root();
    let _alone = Exclusive::take();
    let scratch = Scratch::new();
    let debox = debox_binary();
    let files = ["outer.json", "middle.json", "inner.json"].map(|name| scratch.file(name));
    let mut words: Vec<OsString> = Vec::new();
    for file in &files {
        // A session in a session is refused to people, who would measure the other one.
        words.extend(["env", "-u", "DEBOX_SESSION"].map(OsString::from));
        words.push(debox.clone().into());
        words.extend(["run", "--format", "json", "--output"].map(OsString::from));
        words.extend([file.clone().into(), "--".into()]);
    }
    words.extend(["/bin/sh", "-c"].map(OsString::from));
    words.push("for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done; :".into());
    let status = Command::new(&words[0]).args(&words[1..]).status();
    assert!(status.expect("debox starts").success());
    let [outer, middle, inner] = files.map(|file| report(&file));
    let shell = calls_of_shell(&inner);
    assert_eq!(shell.len(), 1, "{inner:#}");
    // The outer ones see what the process did before it executed the shell, too.
    assert_eq!(calls_of_shell(&middle), calls_of_shell(&outer));
    assert!((shell[0]..shell[0] + 10).contains(&calls_of_shell(&outer)[0]));
    for report in [&outer, &middle, &inner] {
        let sleeps = report["syscalls"].as_array().expect("a table").iter();
        let sleeps = sleeps.filter(|call| call["name"] == "clock_nanosleep");
        let counts: Vec<&Value> = sleeps.map(|call| &call["calls"]).collect();
        assert_eq!(counts, [10]);
    }
}

/// A session that is killed leaves its programs with the gate, if others hold that: they take them away.
#[test]
fn a_killed_session_is_cleared_away() {
    require_root();
    let _alone = Exclusive::take();
    let stays = Session::start(&[]);
    let killed = Session::start(&[]);
    let shared = stays.held();
    let own: Vec<KernelObject> = killed.held().difference(&shared).copied().collect();
    assert!(own.len() > 20, "{own:?}");
    drop(killed); // by SIGKILL
    wait_until_gone(own);
    stays.end();
}
