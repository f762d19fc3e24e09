//! latlab undoes everything it has set up, however a run ends: by itself, by Ctrl-C, by a server that dies,
//! or, if latlab was killed, in the next run. What was measured before is kept.

mod support;

use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{latlab, Place, LATLAB};

fn text(from: Option<impl Read>) -> String {
    let mut text = String::new();
    let mut from = from.expect("it is a pipe");
    from.read_to_string(&mut text).expect("text");
    text
}

fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A run that confines a server, and `recover`, remove what killed latlabs have left. This must not happen
/// in the middle of another test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Control groups of a latlab process.
fn groups(pid: u32) -> Vec<PathBuf> {
    let trees = ["", "cpu", "memory"].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
    let entries = trees.iter().filter_map(|tree| std::fs::read_dir(tree).ok());
    let entries = entries.flat_map(|entries| entries.flatten());
    let its = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy()
            .starts_with(&format!("latlab-{pid}-"))
    });
    its.map(|entry| entry.path()).collect()
}

fn members(groups: &[PathBuf]) -> Vec<u32> {
    let procs = groups.iter().map(|group| group.join("cgroup.procs"));
    let texts = procs.filter_map(|procs| std::fs::read_to_string(procs).ok());
    let numbers = texts.flat_map(|text| {
        let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        numbers
    });
    numbers.collect()
}

/// Temporary directories of a latlab process.
fn directories(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("it is there");
    let its = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        ["server", "run"]
            .iter()
            .any(|kind| name.starts_with(&format!("latlab-{kind}-{pid}-")))
    });
    its.map(|entry| entry.path()).collect()
}

const CONFINED: [&str; 4] = ["--cpus", "0.5", "--memory", "200M"];

/// Waits until the server is in its groups; `None` if there are no control groups.
fn confined(child: &mut Child) -> Option<Vec<u32>> {
    let pid = child.id();
    until("no server was confined", || {
        if child.try_wait().expect("it is a child").is_some() {
            return Some(None);
        }
        let members = members(&groups(pid));
        (!members.is_empty()).then_some(Some(members))
    })
}

fn skipped(child: &mut Child, test: &str) {
    let said = text(child.stderr.take());
    assert!(said.contains("cannot confine"), "{said}");
    debox_skipped::skipped(&format!("{test}: {said}"));
}

#[test]
fn ctrl_c_undoes_what_each_procedure_has_set_up() {
    let _alone = alone();
    let place = Place::programmed(&[]);
    let profile = place.path("profile").display().to_string();
    let times = ["--duration", "20s", "--warmup", "1s"];
    let procedures: [&[&str]; 6] = [
        &["run", "programmed"],
        &["capacity", "programmed"],
        &["profile", "programmed", "-o", &profile],
        &["compare", "programmed", "programmed"],
        &["conform", "programmed", "--fixed-set", "--least", "4"],
        &[
            "sweep",
            "programmed",
            "--vary",
            "service=fixed:0s,fixed:1ms",
        ],
    ];
    for procedure in procedures {
        let mut child = place.start(&[procedure, &CONFINED, &times].concat());
        let pid = child.id();
        let Some(server) = confined(&mut child) else {
            return skipped(&mut child, "ctrl_c_undoes_what_each_procedure_has_set_up");
        };
        // While the server starts, or in the middle of its first run.
        std::thread::sleep(Duration::from_millis(u64::from(pid % 2) * 500));
        latlab::sys::signal(pid, libc::SIGINT);
        let status = child.wait().expect("it ends");
        let said = text(child.stderr.take());
        assert!(
            matches!(status.code(), Some(3 | 125)),
            "{procedure:?}: {said}"
        );
        assert_eq!(groups(pid), Vec::<PathBuf>::new(), "{procedure:?}");
        assert_eq!(directories(pid), Vec::<PathBuf>::new(), "{procedure:?}");
        for process in server {
            let stat = std::fs::read_to_string(format!("/proc/{process}/comm"));
            assert!(stat.is_err(), "{procedure:?} left {process}");
        }
    }
}

#[test]
fn what_a_killed_latlab_leaves_the_next_one_removes() {
    let _alone = alone();
    let place = Place::programmed(&[]);
    let mut child =
        place.start(&[&["run", "programmed", "--duration", "60s"], &CONFINED[..]].concat());
    let pid = child.id();
    if confined(&mut child).is_none() {
        return skipped(
            &mut child,
            "what_a_killed_latlab_leaves_the_next_one_removes",
        );
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    // The server ends with latlab; the process that would remove its groups is gone.
    until("the server does not end", || {
        members(&groups(pid)).is_empty().then_some(())
    });
    assert!(!groups(pid).is_empty() && !directories(pid).is_empty());
    let (summary, said) = place.run(&[&["-n", "50", "--duration", "60s"], &CONFINED[..]].concat());
    assert_eq!(summary["ok"], 50, "{summary:#}");
    assert!(said.contains("which a killed latlab had left"), "{said}");
    assert_eq!(groups(pid), Vec::<PathBuf>::new());
    // Rows without an output file are reported, and not removed.
    let left: Vec<PathBuf> = directories(pid);
    let spools = left
        .iter()
        .all(|path| path.display().to_string().contains("latlab-run-"));
    assert!(spools, "{left:?}");
    for spool in left {
        assert!(
            said.contains(&format!("latlab recover {}", spool.display())),
            "{said}"
        );
        std::fs::remove_dir_all(spool).expect("it is there");
    }
}

/// Processes that have the mark of this latlab's servers in their environment.
fn marked(latlab: u32) -> Vec<u32> {
    let wanted = format!("LATLAB_SERVER=latlab-server-{latlab}-");
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut its: Vec<u32> = pids
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable.starts_with(wanted.as_bytes()))
        })
        .collect();
    its.sort_unstable();
    its
}

/// Without limits, and ignoring the signal that it gets when latlab is killed: a server with one child in
/// its process group, and one that has left it.
#[test]
fn a_hung_server_of_a_killed_latlab_is_found_and_ended() {
    let _alone = alone();
    let script = format!(
        "[ -n \"$GENTLE\" ] || trap '' TERM; sleep 1000 & setsid sleep 1000 & exec '{LATLAB}' server --listen 127.0.0.1:{{port}}"
    );
    for by_next_run in [false, true] {
        let place = Place::script(&script);
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).expect("it can be made");
        let start = |arguments: &[&str]| {
            let mut command = Command::new(LATLAB);
            command.args(arguments).env("TMPDIR", &temporary);
            command.stdin(Stdio::null());
            command
        };
        let run = place.arguments(&["run", "programmed", "--duration", "60s"]);
        let mut child = start(&run)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("latlab runs");
        let pid = child.id();
        // When the server has started, there is a directory for rows.
        until("the server does not come up", || {
            let there = std::fs::read_dir(&temporary)
                .expect("it is there")
                .flatten();
            let mut names = there.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names
                .any(|name| name.starts_with("latlab-run-"))
                .then_some(())
        });
        let stranger = support::Running(
            Command::new("/bin/sleep")
                .arg("1000")
                .env("LATLAB_SERVER", format!("latlab-other-{pid}-"))
                .spawn()
                .expect("it runs"),
        );
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        std::thread::sleep(Duration::from_millis(300));
        let servers = marked(pid);
        assert_eq!(servers.len(), 3, "server, child, and one that has left");
        let said: Output = match by_next_run {
            false => start(&["recover"]).output().expect("latlab runs"),
            // Its own server ends at once, or this run would wait a minute for it.
            true => start(&place.arguments(&["run", "programmed", "-n", "20"]))
                .env("GENTLE", "1")
                .output()
                .expect("latlab runs"),
        };
        let text = match by_next_run {
            false => String::from_utf8_lossy(&said.stdout),
            true => String::from_utf8_lossy(&said.stderr),
        };
        assert!(matches!(said.status.code(), Some(0 | 3)), "{said:?}");
        let numbers: Vec<String> = servers.iter().map(u32::to_string).collect();
        let ended = format!(
            "ended what a killed latlab had left running of programmed: process {}",
            numbers.join(", ")
        );
        assert!(text.contains(&ended), "{ended} is not in {text}");
        assert!(text.contains("latlab recover"), "its rows: {text}");
        assert_eq!(marked(pid), Vec::<u32>::new());
        assert!(Path::new(&format!("/proc/{}", stranger.0.id())).exists());
        let left = std::fs::read_dir(&temporary)
            .expect("it is there")
            .flatten();
        let left: Vec<String> = left
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("latlab-server-"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

#[test]
fn a_server_that_dies_in_the_middle_is_named_and_ends_a_profile() {
    let place = Place::programmed(&["--fault", "die/300"]);
    let (summary, _) = place.run(&["-c", "2", "-n", "400", "--duration", "60s"]);
    let why = summary["server_ended"].as_str().expect("it has ended");
    assert!(why.contains("programmed was not there to the end"), "{why}");
    assert!(summary["refused"]
        .as_str()
        .expect("not valid")
        .contains(why));
    assert_eq!(summary["requests"], 400, "{summary:#}");
    assert!(summary["ok"].as_u64() >= Some(200), "{summary:#}");
    assert!(
        summary["errors"]["refused"].as_u64() >= Some(50),
        "{summary:#}"
    );
    let rows = place.path("profile");
    let output = rows.display().to_string();
    let arguments = [
        "profile",
        "programmed",
        "--capacity",
        "500",
        "--loads",
        "0.2,0.4,0.6",
    ];
    let more = [
        "--duration",
        "1s",
        "--warmup",
        "0s",
        "-o",
        &output,
        "--format",
        "json",
    ];
    let ended = latlab(&place.arguments(&[&arguments[..], &more].concat()));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("was not there to the end"), "{said}");
    let profile: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let runs = profile["loads"].as_array().expect("loads").iter();
    let runs: usize = runs
        .map(|load| load["runs"].as_array().expect("runs").len())
        .sum();
    // No further load is measured, and the completed ones are there.
    assert!((1..9).contains(&runs), "{runs} runs");
    let files = std::fs::read_dir(&rows).expect("the rows").flatten();
    let kept = files.filter(|file| file.file_name().to_string_lossy().ends_with(".parquet"));
    assert_eq!(kept.count(), runs);
}

#[test]
fn an_interrupted_comparison_keeps_its_pairs() {
    let place = Place::programmed(&[]);
    let rows = place.path("rows");
    let output = rows.display().to_string();
    let arguments = [
        "compare",
        "programmed",
        "programmed",
        "--repeats",
        "500",
        "--rate",
        "100",
    ];
    let more = [
        "--duration",
        "300ms",
        "--warmup",
        "0s",
        "-o",
        &output,
        "--format",
        "json",
    ];
    let mut child = place.start(&[&arguments[..], &more].concat());
    let both = ["a-1", "b-1"].map(|name| rows.join(format!("{name}.parquet")));
    until("nothing was measured", || {
        both.iter().all(|file| file.exists()).then_some(())
    });
    latlab::sys::signal(child.id(), libc::SIGTERM);
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(3));
    let result: Value = serde_json::from_str(&text(child.stdout.take())).expect("JSON");
    assert_eq!(result["interrupted"], true);
    assert_eq!(
        result["measures"].as_array().map(Vec::len),
        Some(5),
        "{result:#}"
    );
    assert!(text(child.stderr.take()).contains("NOT VALID: interrupted"));
}

/// A process that serves, and whose parent has ended.
#[test]
fn workers_without_their_master_are_ended() {
    let script = format!("'{LATLAB}' server --listen 127.0.0.1:{{port}} & exec sleep 1000");
    let place = Place::script(&script);
    let (summary, _) = place.run(&["-n", "20", "--duration", "60s"]);
    assert_eq!(summary["ok"], 20, "{summary:#}");
    let url = summary["url"].as_str().expect("it has one");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    until("something still listens", || {
        TcpStream::connect(address).is_err().then_some(())
    });
}

#[test]
fn a_port_that_another_takes_is_said() {
    let place = tempfile::tempdir().expect("a directory");
    let number = place.path().join("pid").display().to_string();
    let listener = format!("setsid '{LATLAB}' server --listen 127.0.0.1:{{port}}");
    let script = format!("{listener} & echo $! >'{number}'; exec sleep 1000");
    let servers = Place::script(&script);
    let output = latlab(&servers.arguments(&["run", "programmed", "-n", "1"]));
    let pid = std::fs::read_to_string(&number).expect("it was started");
    latlab::sys::signal(pid.trim().parse().expect("a number"), libc::SIGKILL);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("is in use by latlab (process"), "{said}");
}

#[test]
fn processes_that_the_kernel_killed_for_memory_are_told() {
    let _alone = alone();
    let script = format!(
        "'{LATLAB}' server --listen 127.0.0.1:{{port}} & sleep 1; head -c 300M /dev/zero | tail >&-; wait"
    );
    let place = Place::script(&script);
    let confined = ["--memory", "60M", "--duration", "4s", "-c", "2"];
    let output = latlab(&place.arguments(&[&["run", "programmed"], &confined[..]].concat()));
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot confine") {
        debox_skipped::skipped(&format!(
            "processes_that_the_kernel_killed_for_memory_are_told: {said}"
        ));
        return;
    }
    let summary = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}{summary}");
    assert!(
        summary.contains("the kernel killed 1 processes of programmed"),
        "{summary}"
    );
}
