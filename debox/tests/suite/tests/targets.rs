// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes are found by what people name: their name, user, control group, unit and container; those that come later,
//! too.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use debox_tests::{require_root, wait_for, Debox, Measured, Scratch};

/// A user that no other process has.
const USER: u32 = 54_321;

/// As the user of a hexadecimal id.
const CONTAINER: &str = "3f2a9c1b2d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";

/// Ended when dropped.
struct Process(Child);

impl Process {
    fn start(program: impl AsRef<Path>, change: impl FnOnce(&mut Command)) -> Process {
        let mut command = Command::new(program.as_ref());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        change(&mut command);
        Process(command.spawn().expect("it can be started"))
    }

    fn sleep(change: impl FnOnce(&mut Command)) -> Process {
        Process::start("/bin/sleep", |command| change(command.arg("100")))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control group, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Group {
        let top = [
            "/sys/fs/cgroup/systemd",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup",
        ];
        let top = top
            .iter()
            .find(|top| Path::new(top).join("cgroup.procs").exists());
        let path = Path::new(top.expect("control groups are mounted")).join(name);
        fs::create_dir(&path).expect("a control group");
        Group(path)
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a member");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_for(Duration::from_secs(5), || fs::remove_dir(&self.0).is_ok());
    }
}

fn pids(run: &Measured) -> BTreeSet<u32> {
    let threads = run.report["threads"].as_array().expect("a table");
    threads
        .iter()
        .filter_map(|thread| thread["pid"].as_u64())
        .map(|pid| pid as u32)
        .collect()
}

#[test]
fn several_kinds_at_once_and_those_that_come_later() {
    require_root();
    let scratch = Scratch::new();
    let name = format!("dbx-{}", std::process::id() % 100_000_000);
    let program = scratch.file(&name);
    symlink("/bin/sleep", &program).expect("a link");
    let named = || {
        Process::start(&program, |command| {
            command.arg("100");
        })
    };
    let group = Group::new(&format!("{name}-group"));
    let (first, of_user, in_group) = (
        named(),
        Process::sleep(|command| {
            command.uid(USER);
        }),
        Process::sleep(|_| ()),
    );
    group.add(in_group.pid());
    let output = scratch.file("report.json");
    let running = Debox::bare(["attach", "--comm", &name, "--user", &USER.to_string()])
        .options(["--cgroup", group.0.to_str().expect("text"), "--for", "4s"])
        .options([
            "--format",
            "json",
            "--output",
            output.to_str().expect("text"),
        ])
        .spawn();
    // It has found the first ones once it has its probes.
    std::thread::sleep(Duration::from_millis(2_500));
    let (later, of_user_later, moved) = (
        named(),
        Process::sleep(|command| {
            command.uid(USER);
        }),
        Process::sleep(|_| ()),
    );
    group.add(moved.pid());
    let finished = running
        .finish()
        .code(0)
        .says(&["joined later", "monitored from at most"]);
    let run = finished.measured(&output);
    let found = pids(&run);
    for process in [&first, &of_user, &in_group, &later, &of_user_later, &moved] {
        assert!(
            found.contains(&process.pid()),
            "{} is not in {found:?}",
            process.pid()
        );
    }
    assert_eq!(found.len(), 6, "only these, and not this test");
}

#[test]
fn a_unit_and_a_container_are_control_groups_of_that_name() {
    require_root();
    let unit = Group::new(&format!("debox-test-{}.service", std::process::id()));
    let container = Group::new(&format!("docker-{CONTAINER}.scope"));
    let (of_unit, of_container, neither) = (
        Process::sleep(|_| ()),
        Process::sleep(|_| ()),
        Process::sleep(|_| ()),
    );
    unit.add(of_unit.pid());
    container.add(of_container.pid());
    let name = unit.0.file_stem().expect("a name").to_str().expect("text");
    let run = Debox::bare(["attach", "--unit", name, "--container", &CONTAINER[..12]])
        .options(["--for", "300ms"])
        .report();
    let found = pids(&run);
    assert_eq!(found, BTreeSet::from([of_unit.pid(), of_container.pid()]));
    assert!(!found.contains(&neither.pid()));
}

#[test]
fn what_does_not_exist_is_an_error_that_says_what_to_do() {
    let errors: [(&[&str], &[&str]); 6] = [
        (
            &["--comm", "no-such-process"],
            &["no process is named", "ps -e"],
        ),
        (
            &["--user", "no-such-user"],
            &["there is no user no-such-user"],
        ),
        (
            &["--unit", "no-such-unit"],
            &["no-such-unit.service does not run", "systemctl status"],
        ),
        (
            &["--cgroup", "/no/such/group"],
            &["there is no control group /no/such/group"],
        ),
        (
            &["--container", "ffffffffffff"],
            &["no running container", "4 digits"],
        ),
        (&["-p", "999999999"], &["there is no process 999999999"]),
    ];
    for (target, words) in errors {
        Debox::bare(["attach"])
            .options(target)
            .finish()
            .code(125)
            .says(words);
        Debox::bare(["top", "--batch"])
            .options(target)
            .finish()
            .code(125)
            .says(words);
    }
    Debox::bare(["attach"])
        .finish()
        .code(2)
        .says(&["--comm", "--unit", "--all"]);
}
