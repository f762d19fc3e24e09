//! Servers that latlab starts itself: they come up, are confined, and nothing of them is left.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use debox_history::History;
use serde_json::Value;
use support::{files, latlab};

/// Whether a program is where servers are.
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
    ];
    for (name, program) in servers {
        if !installed(program) {
            eprintln!("SKIPPED {name}: {program} is not installed");
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

#[test]
fn a_confined_server_serves_and_leaves_nothing() {
    if !installed("nginx") {
        eprintln!("SKIPPED a_confined_server_serves_and_leaves_nothing: nginx is not installed");
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
        eprintln!("SKIPPED a_confined_server_serves_and_leaves_nothing: {said}");
        return;
    }
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["ok"], 500, "{summary:#}");
}

#[test]
fn two_servers_are_compared_by_the_same_requests() {
    if !installed("nginx") {
        eprintln!("SKIPPED two_servers_are_compared_by_the_same_requests: nginx is not installed");
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
    // Both serve what is offered.
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

/// Each value has its runs, and what the server blocks on is counted by DeBox.
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

/// A recording of the server says what the slow requests waited for. The server has the workers that it
/// is told to have: so many of its processes wait for events.
#[test]
fn a_recorded_server_can_be_asked_for_causes() {
    let place = tempfile::tempdir().expect("a directory");
    opened(&place);
    let files = files(place.path());
    let (rows, history) = (
        place.path().join("rows.parquet"),
        place.path().join("server.parquet"),
    );
    let (rows, history) = (
        rows.to_str().expect("plain"),
        history.to_str().expect("plain"),
    );
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
