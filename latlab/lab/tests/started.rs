//! Servers that latlab starts itself: they start, are confined, and leave nothing behind.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use debox_history::History;
use serde_json::Value;
use support::{files, latlab};

/// A path for a file in this place.
fn named(place: &tempfile::TempDir, name: &str) -> String {
    let path = place.path().join(name).with_extension("parquet");
    path.to_str().expect("plain").to_string()
}

/// Whether a program is in one of the directories of servers.
fn installed(name: &str) -> bool {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    places
        .iter()
        .any(|place| Path::new(place).join(name).exists())
}

fn opened(place: &tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("own directory");
}

/// Control groups of latlab processes, and the temporary directories of servers.
fn left_by(pid: u32) -> Vec<String> {
    let groups = ["", "cpu", "memory"].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
    let names = groups
        .iter()
        .filter_map(|tree| std::fs::read_dir(tree).ok());
    let names = names.flat_map(|entries| entries.flatten().map(|entry| entry.file_name()));
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(&format!("latlab-{pid}-")))
        .collect()
}

#[test]
fn every_server_that_is_installed_serves_the_full_mix() {
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let servers = [
        ("nginx", "nginx"),
        ("nginx-tuned", "nginx"),
        ("apache-prefork", "apache2"),
        ("apache-event", "apache2"),
        ("lighttpd", "lighttpd"),
        ("h2o", "h2o"),
        ("caddy", "caddy"),
        ("programmed", ""),
    ];
    for (name, program) in servers {
        if !program.is_empty() && !installed(program) {
            debox_skipped::skipped(&format!("{name}: {program} is not installed"));
            continue;
        }
        let output = latlab(&[
            "run",
            name,
            "--files",
            &files,
            "--mix",
            "full",
            "-c",
            "8",
            "-n",
            "600",
            "--duration",
            "60s",
            "--verify",
            "100%",
            "--max-lateness",
            "1h",
            "--format",
            "json",
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 3)),
            "{name}: {stderr}"
        );
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary["ok"], 600, "{name}: {summary:#}");
    }
}

/// Flash has no dynamic requests yet.
#[test]
fn flash_is_started_from_beside_latlab_and_serves_the_files() {
    if !Path::new(support::LATLAB).with_file_name("flash").exists() {
        debox_skipped::skipped("flash_is_started_from_beside_latlab: flash is not built");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let files = files(place.path());
    let load = "run flash -c 8 -n 600 --duration 60s --verify 100% --max-lateness 1h --format json --files";
    let mut arguments: Vec<&str> = load.split(' ').collect();
    arguments.push(&files);
    let output = latlab(&arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["ok"], 600, "{summary:#}");
}

#[test]
fn a_confined_server_serves_and_leaves_nothing() {
    if !installed("nginx") {
        debox_skipped::skipped(
            "a_confined_server_serves_and_leaves_nothing: nginx is not installed",
        );
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let child = std::process::Command::new(support::LATLAB)
        .args([
            "run",
            "nginx",
            "--files",
            &files,
            "-c",
            "8",
            "-n",
            "500",
            "--duration",
            "60s",
        ])
        .args(["--cpus", "0.1", "--memory", "100M", "--cold"])
        .args(["--max-lateness", "1h", "--format", "json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("latlab runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(left_by(pid), Vec::<String>::new());
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot confine") {
        debox_skipped::skipped(&format!(
            "a_confined_server_serves_and_leaves_nothing: {said}"
        ));
        return;
    }
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["ok"], 500, "{summary:#}");
}

#[test]
fn two_servers_are_compared_by_the_same_requests() {
    if !installed("nginx") {
        debox_skipped::skipped(
            "two_servers_are_compared_by_the_same_requests: nginx is not installed",
        );
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let rows = place.path().join("rows");
    let output = latlab(&[
        "compare",
        "nginx",
        "nginx-tuned",
        "--files",
        &files,
        "--rate",
        "200",
        "--duration",
        "1s",
        "--warmup",
        "200ms",
        "--repeats",
        "2",
        "--max-lateness",
        "1h",
        "--format",
        "json",
        "-o",
        &rows.display().to_string(),
    ]);
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&result["a"], &result["b"]),
        (&"nginx".into(), &"nginx-tuned".into())
    );
    let ratio = result
        .pointer("/measures/0/ratio/median")
        .and_then(Value::as_f64)
        .expect("a ratio");
    // Both serve the offered rate.
    assert!((0.7..1.4).contains(&ratio), "{ratio}");
    assert_eq!(std::fs::read_dir(&rows).expect("the rows").count(), 4);
}

#[test]
fn a_server_that_does_not_come_up_says_why() {
    let place = tempfile::tempdir().expect("a directory");
    let files = files(place.path());
    let servers = place.path().join("servers.toml");
    let text =
        "[[server]]\nname = 'broken'\nstart = ['/bin/sh', '-c', 'echo no such luck; exit 1']\n";
    std::fs::write(&servers, text).expect("it can be written");
    let servers = servers.display().to_string();
    let run = |name: &str| {
        let output = latlab(&["run", name, "--servers", &servers, "--files", &files]);
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run("broken").contains("no such luck"));
    assert!(run("unheard-of").contains("latlab servers"));
}

/// Each value has its runs, and DeBox counts what the server blocks on.
#[test]
fn a_sweep_measures_each_value() {
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let arguments = ["sweep", "nginx", "--vary", "workers=1,3", "--files", &files];
    let more = [
        "-c",
        "4",
        "--duration",
        "1s",
        "--warmup",
        "0s",
        "--repeats",
        "1",
    ];
    let others = ["--max-lateness", "1h", "--blocking", "--format", "json"];
    let output = latlab(&[&arguments[..], &more, &others].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let swept: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let values = swept["values"].as_array().expect("values");
    let names: Vec<&str> = values
        .iter()
        .filter_map(|value| value["value"].as_str())
        .collect();
    assert_eq!(names, ["1", "3"]);
    for value in values {
        let runs = value["runs"].as_array().expect("runs");
        assert!(runs[0]["ok"].as_u64() > Some(10), "{value:#}");
        let blocking = value["blocking"].as_array().expect("recordings");
        assert!(
            blocking.len() == 1 && blocking[0]["labels"].is_object(),
            "{value:#}"
        );
    }
    let wrong = latlab(&["sweep", "nginx", "--vary", "wrokers=1,2", "--files", &files]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        said.contains("nginx has no parameter wrokers; it has workers"),
        "{said}"
    );
    assert_eq!(wrong.status.code(), Some(125));
}

/// How latency depends on the processor's speed: each part of a CPU has its own capacity, and latency is
/// measured at a part of that.
#[test]
fn a_sweep_over_the_processor_s_speed_has_the_capacity_of_each() {
    if !installed("nginx") {
        debox_skipped::skipped("a_sweep_over_the_processor_s_speed: nginx is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let sweep = [
        "sweep",
        "nginx",
        "--vary",
        "cpus=0.1,0.4",
        "--load",
        "0.5",
        "--files",
        &files,
        "-c",
        "16",
    ];
    let times = ["--duration", "2s", "--warmup", "500ms", "--repeats", "1"];
    let more = ["--max-lateness", "1h", "--format", "json"];
    let output = latlab(&[&sweep[..], &times, &more].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("cannot confine") {
        debox_skipped::skipped(&format!("a_sweep_over_the_processor_s_speed: {stderr}"));
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let swept: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let capacity = |at: usize| {
        let rps = swept.pointer(&format!("/values/{at}/capacity_rps/median"));
        rps.and_then(Value::as_f64).expect("a capacity")
    };
    // How they compare depends on the machine, which may have no more CPU time to give.
    assert!(capacity(0) > 0.0 && capacity(1) > 0.0, "{swept:#}");
    for value in swept["values"].as_array().expect("values") {
        let offered = value.pointer("/runs/0/offered_rps").and_then(Value::as_f64);
        let rps = value
            .pointer("/capacity_rps/median")
            .and_then(Value::as_f64);
        let part = offered.expect("a rate") / rps.expect("a capacity");
        assert!((part - 0.5).abs() < 1e-6, "{value:#}");
        assert!(value.pointer("/p50_ns/median").is_some(), "{value:#}");
    }
    let wrong = latlab(&[
        "sweep",
        "nginx",
        "--vary",
        "cpus=0.5,many",
        "--files",
        &files,
    ]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        said.contains("cpus=many: expected a number of CPUs"),
        "{said}"
    );
}

/// Section 2.2 of the thesis: one request in many takes longer, throughput does not show it, and a
/// recording shows the cause.
#[test]
fn a_stall_in_every_nth_request_is_told_with_its_reason() {
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let (rows, history) = (&named(&place, "rows"), &named(&place, "server"));
    let run = [
        "run",
        "programmed",
        "--files",
        &files,
        "--rate",
        "200",
        "--duration",
        "5s",
        "--max-lateness",
        "1h",
        "--format",
        "json",
    ];
    let measured = |more: &[&str]| -> Value {
        let output = latlab(&[&run[..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let stall = ["--set", "service=stall:60ms/40"];
    let (without, with) = (measured(&[]), measured(&stall));
    let rate = |run: &Value| run["throughput_rps"].as_f64().expect("a rate");
    assert!(rate(&with) > 0.7 * rate(&without), "{without:#}{with:#}");
    assert!(
        with["latency_from_start"]["p99_ns"].as_i64() >= Some(60_000_000),
        "{with:#}"
    );
    // Again with DeBox, which costs time itself.
    measured(&[&stall[..], &["-o", rows, "--record", history]].concat());
    let analyze = [
        "analyze",
        rows,
        "--history",
        history,
        "--slow",
        "98",
        "--format",
        "json",
    ];
    let output = latlab(&analyze);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let causes = report
        .pointer("/server/causes/causes")
        .and_then(Value::as_array);
    // On a busy machine waits for a CPU may come before it.
    let first = causes
        .expect("causes")
        .iter()
        .find(|cause| cause["label"] == "timer" && cause["call"] == "clock_nanosleep");
    let first = first.unwrap_or_else(|| panic!("no timer in {report:#}"));
    // Two in a hundred are slow, and 2.5 stall: so nearly all of the slow ones stall.
    assert!(first["part"].as_f64() > Some(0.5), "{first:#}");
    assert!(first["slow_ns"].as_f64() > Some(25e6), "{first:#}");
}

/// A recording of the server shows what slow requests waited for. The server has the number of workers
/// that it is told to have: that many of its processes wait for events.
#[test]
fn a_recorded_server_can_be_asked_for_causes() {
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let (rows, history) = (&named(&place, "rows"), &named(&place, "server"));
    let run = [
        "run",
        "nginx",
        "--files",
        &files,
        "-c",
        "4",
        "-n",
        "400",
        "--duration",
        "60s",
        "--set",
        "workers=3",
    ];
    let output = latlab(
        &[
            &run[..],
            &["--max-lateness", "1h", "-o", rows, "--record", history],
        ]
        .concat(),
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let recorded = History::open(&[history]).expect("a history");
    let calls = recorded.calls().map(|call| call.expect("a row").1);
    let workers: BTreeSet<u32> = calls
        .filter(|call| &*call.comm == "nginx" && &*call.name == "epoll_wait")
        .map(|call| call.pid)
        .collect();
    assert_eq!(workers.len(), 3, "{workers:?}");
    let output = latlab(&["analyze", rows, "--history", history, "--format", "json"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["requests"], 400, "{report:#}");
}

/// Descendants of a process that have this name.
fn below(top: u32, comm: &str) -> Vec<u32> {
    let parents: BTreeMap<u32, (u32, String)> = kit_proc::pids()
        .filter_map(|pid| {
            let stat = kit_proc::stat(pid)?;
            Some((pid, (stat.ppid as u32, stat.comm)))
        })
        .collect();
    let is_below = |mut pid: u32| {
        while let Some((parent, _)) = parents.get(&pid) {
            if *parent == top {
                return true;
            }
            pid = *parent;
        }
        false
    };
    let called = parents.iter().filter(|(_, (_, name))| name == comm);
    called
        .map(|(pid, _)| *pid)
        .filter(|pid| is_below(*pid))
        .collect()
}

/// Time that a process has spent on a CPU or waiting for one, according to the scheduler.
fn runnable_ns(pid: u32) -> Option<u64> {
    let (on_cpu, waited) = kit_proc::scheduled_ns(pid)?;
    Some(on_cpu + waited)
}

/// Compares the average number of runnable threads (Figure 3.2) in the history with the scheduler's
/// accounting of the same processes, and the time without runnable threads with their states, which are
/// sampled.
#[test]
fn runnable_threads_are_those_of_the_scheduler() {
    if !installed("nginx") {
        debox_skipped::skipped(
            "runnable_threads_are_those_of_the_scheduler: nginx is not installed",
        );
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let (rows, history) = (&named(&place, "rows"), &named(&place, "server"));
    let run = [
        "run",
        "nginx",
        "--files",
        &files,
        "--rate",
        "300",
        "-c",
        "16",
        "--duration",
        "7s",
        "--set",
        "workers=2",
        "--max-lateness",
        "1h",
        "-o",
        rows,
        "--record",
        history,
    ];
    let mut child = std::process::Command::new(support::LATLAB)
        .args(run)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("latlab runs");
    // The master and two workers, one of which may have started earlier.
    let mut workers = Vec::new();
    while workers.len() < 3 {
        assert!(
            child.try_wait().expect("a status").is_none(),
            "it ended at once"
        );
        std::thread::sleep(Duration::from_millis(20));
        workers = below(child.id(), "nginx");
    }
    // From before the first request until the workers end: they do nothing besides serving the load.
    let sum = || -> Option<u64> { workers.iter().map(|pid| runnable_ns(*pid)).sum() };
    let before = sum().expect("schedstat");
    let (mut after, mut looks) = (before, Vec::new());
    while let Some(now) = sum() {
        after = now;
        let runs = |pid: &u32| kit_proc::stat(*pid).is_some_and(|stat| stat.state == 'R');
        looks.push(workers.iter().any(runs));
        std::thread::sleep(Duration::from_millis(3));
    }
    let none = looks.iter().filter(|runs| !**runs).count() as f64 / looks.len() as f64;
    assert!(child.wait().is_ok());
    let output = latlab(&["analyze", rows, "--history", history, "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = |name: &str| {
        let pointer = format!("/server/burstiness/runnable/{name}");
        let value = report.pointer(&pointer).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("{name} in {:#}", report["server"]))
    };
    let seconds = report
        .pointer("/server/common_seconds")
        .and_then(Value::as_f64);
    let mean = (after - before) as f64 / 1e9 / seconds.expect("a time in common");
    // Starting and ending them takes some milliseconds, and the states are only sampled.
    let near = |name: &str, ours: f64, theirs: f64, room: f64| {
        assert!(
            (ours - theirs).abs() < room,
            "{name}: {ours} in the history, {theirs} beside it"
        );
    };
    println!(
        "runnable {} and {mean}, none {} and {none}",
        found("mean"),
        found("none")
    );
    near("mean", found("mean"), mean, 0.02 + 0.25 * mean);
    near("none", found("none"), none, 0.25);
    let parts = report.pointer("/server/burstiness/runnable/histogram");
    let parts = parts.and_then(Value::as_array).expect("a histogram");
    let sum: f64 = parts.iter().filter_map(|bar| bar[2].as_f64()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{parts:?}");
}
