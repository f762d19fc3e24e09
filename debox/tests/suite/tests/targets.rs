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

use debox_tests::{require_root, skipped, wait_for, Debox, Measured, Scratch};
use serde_json::Value;

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

/// A container of Podman, if there is one that works here. Its root has this machine's programs.
struct Podman {
    options: Vec<String>,
    name: String,
    _scratch: Scratch,
}

impl Podman {
    /// Some machines need another runtime or another manager of control groups than the usual one.
    fn start() -> Result<Podman, String> {
        let scratch = Scratch::new();
        let root = scratch.file("root");
        fs::create_dir_all(root.join("usr")).expect("scratch is writable");
        for link in ["bin", "sbin", "lib", "lib64"] {
            if let Ok(to) = fs::read_link(Path::new("/").join(link)) {
                symlink(to, root.join(link)).expect("a link");
            }
        }
        let name = format!("debox-test-{}", std::process::id());
        let ways: [&[&str]; 3] = [
            &[],
            &["--cgroup-manager", "cgroupfs"],
            &["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
        ];
        let mut why = String::new();
        for way in ways {
            let mut command = Command::new("podman");
            command
                .args(way)
                .args([
                    "run",
                    "--detach",
                    "--rm",
                    "--name",
                    &name,
                    "--network",
                    "none",
                ])
                .args([
                    "--ulimit",
                    "nofile=1024:1024",
                    "--ulimit",
                    "nproc=1024:1024",
                ])
                .args(["--volume", "/usr:/usr:ro", "--rootfs"])
                .arg(&root)
                .args(["/usr/bin/sleep", "100"]);
            let done = command.output().map_err(|error| error.to_string())?;
            if done.status.success() {
                return Ok(Podman {
                    options: way.iter().map(|option| option.to_string()).collect(),
                    name,
                    _scratch: scratch,
                });
            }
            why = String::from_utf8_lossy(&done.stderr).into_owned();
        }
        Err(why.lines().last().unwrap_or("no reason").to_string())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut command = Command::new("podman");
        let command = command.args(&self.options);
        let _ = command
            .args(["rm", "--force", "--time", "0", &self.name])
            .output();
    }
}

#[test]
fn a_container_of_podman_has_its_name_and_its_own_numbers() {
    require_root();
    let podman = match Podman::start() {
        Ok(podman) => podman,
        Err(why) => {
            skipped(
                "a_container_of_podman_has_its_name_and_its_own_numbers",
                &format!("podman starts no container: {why}"),
            );
            return;
        }
    };
    let rows = |by: &str| -> Vec<Value> {
        let done = Debox::bare(["top", "--batch", "-n", "1", "--interval", "500ms", "--idle"])
            .options(["--container", &podman.name, "--inside", "--by", by])
            .options(["--format", "json"])
            .finish()
            .code(0);
        let look: Value = serde_json::from_str(done.stdout.trim()).expect("a line of JSON");
        look["rows"].as_array().expect("rows").clone()
    };
    let by_process = rows("process");
    assert_eq!(by_process.len(), 1, "{by_process:#?}");
    assert_eq!(by_process[0]["name"], "sleep");
    assert_eq!(by_process[0]["inside"], 1, "{by_process:#?}");
    assert_eq!(rows("unit")[0]["name"], podman.name.as_str());
    // The same in a recording.
    let scratch = Scratch::new();
    let file = scratch.file("contained.parquet");
    let file = file.to_str().expect("text");
    Debox::bare([
        "record",
        "--container",
        &podman.name,
        "--for",
        "300ms",
        "-o",
        file,
    ])
    .finish()
    .code(0);
    let done = Debox::bare(["report", file, "--by", "process"])
        .finish()
        .code(0);
    let is_there = |line: &&str| line.contains(&podman.name) && line.contains("/usr/bin/sleep");
    let line = done.stdout.lines().find(is_there);
    let line = line.unwrap_or_else(|| panic!("{}", done.stdout));
    assert_eq!(line.split_whitespace().nth(1), Some("1"), "{line}");
    let done = Debox::bare(["report", file, "--by", "unit"])
        .finish()
        .code(0);
    assert!(done.stdout.contains(&podman.name), "{}", done.stdout);
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
