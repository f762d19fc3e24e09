// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole trees of processes: those that live already when debox attaches, those that live on after a command, and
//! what tells them apart.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use debox_history::History;
use debox_tests::brokered::Place;
use debox_tests::brokered::OTHER;
use debox_tests::brokered::USER;
use debox_tests::debox_binary;
use debox_tests::ms;
use debox_tests::require_root;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::Debox;
use debox_tests::Scratch;
use serde_json::Value;

/// A program and all that it starts, in a process group of its own; killed when dropped.
struct Tree(Child);

impl Tree {
    fn start(words: &[&str]) -> Tree {
        let child = Command::new(words[0])
            .args(&words[1..])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        Tree(child)
    }

    /// A shell, with these commands in the background, waiting for them.
    fn of_shell(commands: &[&str]) -> Tree {
        let script: String = commands
            .iter()
            .map(|command| format!("{command} & "))
            .collect();
        let tree = Tree::start(&["sh", "-c", &format!("{script} wait")]);
        let started = wait_for(Duration::from_secs(20), || {
            tree.children().len() == commands.len()
        });
        assert!(started, "the shell never started its commands");
        tree
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its children that run a program of their own.
    fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let comm = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .filter(|pid| comm(*pid).is_ok_and(|comm| comm.trim_end() != "sh"))
            .collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: the group is this process's own child's, which was not waited for.
        unsafe { libc::kill(-(self.pid() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// The processes in a report.
fn pids(report: &Value) -> BTreeSet<u32> {
    let threads = report["threads"].as_array().expect("a table");
    let pid = |thread: &Value| thread["pid"].as_u64().expect("a number") as u32;
    threads.iter().map(pid).collect()
}

/// Command lines and titles, as `ps` shows them.
fn names(report: &Value) -> Vec<String> {
    let processes = report["processes"].as_array().expect("a table");
    let name = |process: &Value| match process["title"].as_str() {
        Some(title) => title.to_string(),
        None => {
            let words = process["command"].as_array().expect("words");
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            words.join(" ")
        }
    };
    processes.iter().map(name).collect()
}

#[track_caller]
fn attached(options: &[&str]) -> Value {
    let all = [&["attach"], options].concat();
    Debox::bare(all).report().report
}

#[test]
fn children_that_live_already_are_attached_to() {
    let tree = Tree::of_shell(&[
        "sleep 1000",
        "sleep 2000",
        "timeout --foreground 4000 sleep 3000",
    ]);
    let pid = tree.pid().to_string();
    let report = attached(&["-p", &pid, "--for", "300ms"]);
    let found = pids(&report);
    assert_eq!(
        found.len(),
        5,
        "grandchildren, too: {:#}",
        report["threads"]
    );
    assert!(found.contains(&tree.pid()));
    let names = names(&report);
    for name in ["sleep 1000", "sleep 2000", "sleep 3000"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }

    let alone = attached(&["-p", &pid, "--only", "--for", "300ms"]);
    assert_eq!(pids(&alone), BTreeSet::from([tree.pid()]));
}

#[test]
fn several_processes_are_attached_to() {
    let trees = [
        Tree::of_shell(&["sleep 1000"]),
        Tree::of_shell(&["sleep 1000"]),
    ];
    let [first, second] = trees.each_ref().map(|tree| tree.pid().to_string());
    let both = BTreeSet::from(trees.each_ref().map(Tree::pid));
    let list = format!("{first},{second}");
    for options in [&["-p", &list][..], &["-p", &first, "--pid", &second]] {
        let report = attached(&[options, &["--only", "--for", "200ms"]].concat());
        assert_eq!(pids(&report), both);
        let report = attached(&[options, &["--for", "200ms"]].concat());
        assert_eq!(pids(&report).len(), 4);
    }
}

/// Starts six hundred children, one every ten milliseconds: debox comes in the middle of it.
const STARTS_MANY: &str = "
import os, time
for _ in range(600):
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)
    time.sleep(0.01)
time.sleep(1000)
";

#[test]
fn children_that_start_meanwhile_are_not_lost() {
    let tree = Tree::start(&["python3", "-c", STARTS_MANY]);
    wait_for(Duration::from_secs(20), || tree.children().len() > 20);
    let seconds = 9 * slowness();
    let report = attached(&[
        "-p",
        &tree.pid().to_string(),
        "--for",
        &format!("{seconds}s"),
    ]);
    let children: BTreeSet<u32> = tree.children().into_iter().collect();
    assert_eq!(children.len(), 600);
    let seen = pids(&report);
    let missing: Vec<&u32> = children.difference(&seen).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_lives_on_after_a_command_is_named_or_followed() {
    let script = "sleep 2.5 & true";
    let run = || Debox::command("sh").args(["-c", script]);
    let report = run().report().report;
    let left = report["live_on"].as_array().expect("a table");
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(report["duration_ns"].as_u64().expect("a number") < ms(2_000) * slowness());
    let finished = run().finish();
    let pid = |text: &str| text.contains("lives on") && text.contains("debox attach -p ");
    assert!(pid(&finished.stderr), "{}", finished.stderr);
    assert!(finished.stderr.contains("sleep 2.5"), "{}", finished.stderr);

    let followed = run().options(["--follow"]).report();
    assert_eq!(followed.report["live_on"], serde_json::json!([]));
    let threads = followed.report["threads"].as_array().expect("a table");
    let slept = threads.iter().find(|thread| thread["comm"] == "sleep");
    let wall = slept.expect("a row")["wall_ns"].as_u64();
    assert!(wall.expect("a number") > ms(2_400), "{threads:#?}");
}

#[test]
fn processes_of_one_name_are_told_apart() {
    let finished = Debox::command("sh")
        .args(["-c", "sleep 0.11 & sleep 0.12 & wait"])
        .finish();
    for line in ["command line", "sleep 0.11", "sleep 0.12"] {
        assert!(finished.stderr.contains(line), "{}", finished.stderr);
    }
}

#[test]
fn a_title_that_a_program_gives_itself_is_its_name() {
    // Perl writes $0 where setproctitle() does. One ends at once, one lives on and is looked at.
    let script =
        r#"if (fork) { $0 = "master of all"; sleep 1; wait } else { $0 = "worker: one"; exit }"#;
    let report = Debox::command("perl").args(["-e", script]).report().report;
    let names = names(&report);
    assert_eq!(
        names,
        ["master of all", "worker: one"],
        "{:#}",
        report["processes"]
    );
    assert_eq!(report["processes"][0]["command"][0], "perl");
    let parent = &report["processes"][1]["parent"];
    assert_eq!(parent, &report["processes"][0]["pid"]);
}

#[test]
fn a_recording_has_the_command_lines() {
    require_root();
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let tree = Tree::of_shell(&["sleep 1000", "sleep 2000"]);
    let done = Command::new(debox_binary())
        .args([
            "record",
            "-p",
            &tree.pid().to_string(),
            "--for",
            "500ms",
            "-o",
        ])
        .arg(&file)
        .output()
        .expect("debox runs");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let history = History::open(&[&file]).expect("a history");
    let processes = &history.files[0].meta.processes;
    let names: BTreeSet<String> = processes.iter().map(|process| process.name()).collect();
    assert!(
        names.contains("sleep 1000") && names.contains("sleep 2000"),
        "{names:?}"
    );
    let report = Command::new(debox_binary())
        .arg("report")
        .arg(&file)
        .output();
    let report = report.expect("debox runs");
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("sleep 2000"), "{text}");
    let export = |format: &str| {
        let done = Command::new(debox_binary())
            .args(["export", "--format", format])
            .arg(&file)
            .output()
            .expect("debox runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let lines = export("ndjson");
    assert!(lines.contains(r#""process":"sleep 2000""#), "{lines}");
    assert!(export("perfetto").contains("sleep 2000"));
}

/// A user's own sleeping processes: a shell and its child.
fn sleepers_of(place: &Place, user: u32) -> Tree {
    let words = place.words_of(user);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shell = ["sh", "-c", "sleep 1000; true"];
    let tree = Tree::start(&[&words[..], &shell].concat());
    let started = wait_for(Duration::from_secs(20), || tree.children().len() == 1);
    assert!(started, "the shell never started");
    tree
}

#[test]
fn users_attach_to_their_own_processes_through_the_broker() {
    let place = Place::with_broker(&[]);
    let (own, others) = (sleepers_of(&place, USER), sleepers_of(&place, OTHER));
    let binary = place.path().join("debox");
    let attach = |tree: &Tree| {
        let pid = tree.pid().to_string();
        Debox::bare(["attach", "-p", &pid, "--for", "500ms"]).binary(&binary)
    };
    let report = place.report_of(USER, || attach(&own)).report;
    let expected: BTreeSet<u32> = own.children().into_iter().chain([own.pid()]).collect();
    assert_eq!(pids(&report), expected, "{report:#}");
    assert!(
        names(&report).contains(&"sleep 1000".to_string()),
        "{report:#}"
    );

    let words = place.words_of(USER);
    let refused = attach(&others).finish_under(&words);
    assert_eq!(refused.status.code(), Some(125), "{refused}");
    refused.says(&["runs as another user or group"]);
}

/// A process whose program its user may execute but not read. The kernel makes it undumpable, so only root may look into
/// it.
fn undumpable_of(place: &Place, user: u32) -> Tree {
    let hidden = place.copy(Path::new("/bin/sleep"));
    std::fs::set_permissions(&hidden, Permissions::from_mode(0o711)).expect("it is ours");
    let words = place.words_of(user);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let program = [hidden.to_str().expect("a plain name"), "1000"];
    let tree = Tree::start(&[&words[..], &program].concat());
    let comm = format!("/proc/{}/comm", tree.pid());
    let runs = || std::fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n");
    assert!(wait_for(Duration::from_secs(20), runs), "it never started");
    tree
}

#[test]
fn members_that_cannot_be_monitored_are_named_and_are_a_doubt() {
    let place = Place::with_broker(&[]);
    let (_own, hidden) = (sleepers_of(&place, USER), undumpable_of(&place, USER));
    let binary = place.path().join("debox");
    let user = USER.to_string();
    let why = format!(
        "Not monitored: process {} cannot be inspected",
        hidden.pid()
    );
    let attach = || Debox::bare(["attach", "--user", &user, "--for", "500ms"]).binary(&binary);
    let report = place.report_of(USER, attach).report;
    let notes = report["unseen"].to_string();
    assert!(notes.contains(&why), "{notes}");

    // A recording names them when it ends, and keeps them.
    let file = place.report_file().with_extension("parquet");
    let file = file.to_str().expect("a plain name");
    let record = ["record", "--user", &user, "--for", "500ms", "-o", file];
    let recorded = Debox::bare(record)
        .binary(&binary)
        .finish_under(&place.words_of(USER))
        .code(0);
    recorded.says(&[why.as_str()]);
    let read = Debox::bare(["report", "--json", file])
        .binary(&binary)
        .finish_under(&place.words_of(USER))
        .code(0);
    assert!(read.stdout.contains(&why), "{read}");

    let guard = Debox::bare(["guard", "--user", &user, "--for", "500ms"]).binary(&binary);
    let guarded = guard.finish_under(&place.words_of(USER));
    assert_eq!(guarded.status.code(), Some(3), "{guarded}");
    assert!(guarded.to_string().contains(&why), "{guarded}");
}

#[test]
fn code_that_was_made_at_run_time_has_its_name() {
    // The longer sleep is seen, and the name looked for, while it lasts.
    for late in [&["30"][..], &["30", "late"], &["300", "late"]] {
        let run = Debox::run("made_code")
            .args(late)
            .options(["--detail", "callsites"])
            .report();
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", run.report["threads"][0]["pid"]));
        let sites = run.report["call_sites"].as_array().expect("a table");
        let site = sites.iter().find(|site| {
            site["syscall"]
                .as_str()
                .is_some_and(|call| call.contains("nanosleep"))
        });
        let site = site.unwrap_or_else(|| panic!("{sites:#?}"));
        let frames = site["frames"].as_array().expect("frames");
        let made = "JS:*answer /app/server.js:12+0x6 (jit)";
        assert!(frames.iter().any(|frame| frame == made), "{site:#}");
        assert_eq!(site["caller"], made, "{site:#}");
    }
}

/// Python's trampolines have neither unwinding tables nor frame pointers.
#[test]
fn a_stack_goes_on_behind_a_trampoline_of_python() {
    let run = Debox::run("made_code")
        .args(["30", "python"])
        .options(["--detail", "callsites"])
        .report();
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", run.report["threads"][0]["pid"]));
    let sites = run.report["call_sites"].as_array().expect("a table");
    let all = sites.iter().filter_map(|site| site["frames"].as_array());
    let mut stacks = all.map(|frames| frames.iter().filter_map(|frame| frame.as_str()));
    let found = stacks.any(|mut frames| {
        frames.any(|frame| frame == "py::answer:/app/main.py+0xa (jit)")
            && frames.any(|frame| frame.starts_with("main+") || frame.starts_with("main "))
    });
    assert!(found, "{sites:#?}");
}

#[test]
fn what_debox_does_before_the_program_is_not_the_programs() {
    let run = Debox::command("/bin/true")
        .options(["--detail", "callsites"])
        .report();
    let text = run.report["call_sites"].to_string();
    assert!(!text.contains("debox"), "{text}");
}
