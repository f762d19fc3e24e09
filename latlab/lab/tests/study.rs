//! A complete, small `latlab study`: nginx and Apache with more files than memory on a slow disk. Needs root,
//! and leaves nothing behind, however it ends.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{json, Value};
use support::schema::{errors, Schemas};
use support::slow_disk::{is_skipped, place};
use support::{files, latlab, LATLAB};

fn skipped(test: &str) -> bool {
    is_skipped(test, &["nginx", "apache2"], false)
}

fn arguments(place: &Path) -> Vec<String> {
    let output = place.join("study").display().to_string();
    let small = [
        "--size",
        "60M",
        "--memory",
        "40M",
        "--loads",
        "0.5,1.1",
        "--repeats",
        "1",
        "--duration",
        "1s",
        "--warmup",
        "500ms",
        "--connections",
        "32",
        "--most",
        "128",
        "--max-lateness",
        "1h",
    ];
    let mut all = ["study", "nginx", "apache-event", "-o"]
        .map(String::from)
        .to_vec();
    all.push(output);
    all.extend(["--place".to_string(), place.display().to_string()]);
    all.extend(small.map(String::from));
    all
}

/// Mounts, loop devices, notes of disks, control groups.
fn left(pid: u32, place: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let name = format!("study-{pid}");
    let ours = |line: &&str| line.contains(&*place.to_string_lossy()) || line.contains(&name);
    left.extend(mounts.lines().filter(ours).map(String::from));
    let loops = Command::new("losetup").arg("-a").output().expect("losetup");
    let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
    left.extend(loops.lines().filter(ours).map(String::from));
    let note = format!("/run/latlab/disks/{name}.json");
    left.extend(Path::new(&note).exists().then_some(note));
    for tree in ["", "cpu", "memory"] {
        let groups = std::fs::read_dir(Path::new("/sys/fs/cgroup").join(tree));
        let groups = groups.into_iter().flatten().flatten();
        let names = groups.map(|group| group.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| name.starts_with(&format!("latlab-{pid}-"))));
    }
    let files = std::fs::read_dir(place).expect("the place").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    left.extend(names.filter(|name| name.starts_with("latlab-study-")));
    left
}

fn positive(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    let found = found.unwrap_or_else(|| panic!("{pointer} in {value:#}"));
    assert!(found > 0.0, "{pointer} is {found}");
    found
}

#[test]
fn two_servers_are_studied_and_nothing_is_left() {
    if skipped("two_servers_are_studied_and_nothing_is_left") {
        return;
    }
    let place = place();
    let child = Command::new(LATLAB)
        .args(arguments(place.path()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("latlab runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(left(pid, place.path()), Vec::<String>::new());
    if stderr.contains("cannot confine") {
        debox_skipped::skipped(&format!("two_servers_are_studied: {stderr}"));
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let kept =
        |name: &str| std::fs::read_to_string(place.path().join("study").join(name)).expect(name);
    let study: Value = serde_json::from_str(&kept("study.json")).expect("JSON");
    assert_eq!(study["schema"], "latlab.study/1");
    as_the_schema_says(&study);
    // The disk takes 5 ms for a request, and a cold open is at least one.
    assert!(positive(&study, "/terms/cold_open_ns") >= 5e6);
    let servers = study["servers"].as_array().expect("servers");
    let names: Vec<&str> = servers
        .iter()
        .filter_map(|server| server["name"].as_str())
        .collect();
    assert_eq!(names, ["nginx", "apache-event"]);
    let mut read = false;
    for server in servers {
        // Closed loops, and an interval of rates: one that is served, and a slightly higher one that is not.
        positive(server, "/capacity/rps/median");
        let capacity = positive(server, "/capacity/served_rps");
        let not_served = positive(server, "/capacity/not_served_rps");
        assert!(
            capacity < not_served && not_served / capacity < 1.2,
            "{capacity} {not_served}"
        );
        positive(server, "/recording/requests");
        // Not all files were in memory.
        positive(server, "/disk_reads_per_1000");
        let loads = server["loads"].as_array().expect("loads");
        assert_eq!(loads.len(), 2);
        for (load, part) in loads.iter().zip([0.5, 1.1]) {
            assert_eq!(load["load"], part);
            assert!((positive(load, "/offered_rps") / capacity / part - 1.0).abs() < 1e-6);
            positive(load, "/p50_ns/median");
            let inversion = positive(load, "/inversion/median");
            assert!(inversion < 1.0, "{inversion}");
        }
        let analyzed = server.pointer("/analysis/runs").and_then(Value::as_array);
        let analyzed = analyzed.expect("a report of each load");
        assert!(analyzed
            .iter()
            .all(|run| run["deciles"].as_array().is_some_and(|d| d.len() == 10)));
        assert_eq!(server["no_reasons"], Value::Null, "{stderr}");
        positive(server, "/recorded/server/burstiness/ready/calls");
        positive(server, "/recorded/server/burstiness/runnable/threads");
        let causes = server
            .pointer("/recorded/server/causes/causes")
            .and_then(Value::as_array);
        let causes = causes.expect("causes");
        assert!(!causes.is_empty(), "{server:#}");
        read |= causes.iter().any(|cause| cause["class"] == "disk");
    }
    // The slow requests of nginx, which has one process, read from the disk. On a busy machine, the hundred
    // threads of the other server may have waited longer for a CPU.
    assert!(read, "{servers:#?}");
    let tables = kept("study.md");
    assert!(
        tables.contains("beyond its capacity") || tables.contains("contradict each other"),
        "{tables}"
    );
    for words in ["### Findings", "Sizes by tenth", "| waited for |"] {
        let told = tables.contains(words);
        assert!(told, "{words} is not in {tables}");
    }
    let page = place.path().join("study/study.html");
    match page.exists() {
        true => drawn(&page),
        false => assert!(stderr.contains("no HTML page was written"), "{stderr}"),
    }
}

/// The schema describes everything and nothing else: a missing or different field is an error.
fn as_the_schema_says(study: &Value) {
    const NAME: &str = "latlab-study-1.json";
    let schemas = Schemas::all();
    let schema = schemas.named(NAME);
    assert!(jsonschema::meta::is_valid(schema));
    let validator = schemas.validator(schema);
    assert_eq!(errors(&validator, study), Vec::<String>::new());
    schemas.compare(NAME, schema, study, "study");
    let mut places = vec![String::new()];
    for place in ["/machine", "/terms", "/servers/0", "/servers/0/loads/0"] {
        places.push(place.to_string());
    }
    for place in places {
        let fields = study.pointer(&place).and_then(Value::as_object);
        for field in fields.expect("an object").keys() {
            let mut less = study.clone();
            let object = less.pointer_mut(&place).and_then(Value::as_object_mut);
            object.expect("an object").remove(field);
            assert!(!validator.is_valid(&less), "valid without {place}/{field}");
        }
    }
    for (place, wrong) in [
        ("/schema", json!("latlab.study/2")),
        ("/findings/0/evidence", json!("hearsay")),
        ("/terms/cold_open_ns", json!(1.5)),
        ("/servers", json!([])),
        ("/servers/0/capacity", json!({})),
        (
            "/servers/0/analysis",
            json!({"schema": "latlab.analysis/1"}),
        ),
        ("/servers/0/recorded", json!("none")),
        ("/servers/0/loads/0/runs/0/errors", json!({"bad luck": 1})),
        ("/servers/0/loads/0/inversion", json!({"median": 0.5})),
    ] {
        let mut changed = study.clone();
        *changed.pointer_mut(place).expect("it is there") = wrong;
        assert!(!validator.is_valid(&changed), "{place} may be wrong");
    }
}

/// In a real browser without a network: every plot is drawn, and no error is reported.
fn drawn(page: &Path) {
    let Some(opened) = debox_browser::open(page, 1000, "") else {
        debox_skipped::skipped("the_page: no chromium (scripts/setup browser)");
        return;
    };
    let head = opened.head();
    assert!(
        head.contains("data-done=\"yes\"") && !head.contains("data-error"),
        "{head}\n{}",
        opened.log
    );
    let plots = head
        .split("data-plots=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let (drawn, all) = plots
        .and_then(|plots| plots.split_once('/'))
        .expect("plots");
    assert_eq!(drawn, all);
    for section in [
        "findings",
        "loads",
        "latency",
        "inversion",
        "deciles",
        "burstiness",
        "causes",
    ] {
        assert!(
            opened.dom.contains(&format!("<section id=\"{section}\"")),
            "{section}"
        );
    }
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// Ctrl-C ends a study early and removes what it has set up. `recover` removes what a killed study leaves.
#[test]
fn an_interrupted_study_takes_everything_down() {
    if skipped("an_interrupted_study_takes_everything_down") {
        return;
    }
    for (signal, at) in [
        (libc::SIGINT, "capacity"),
        (libc::SIGTERM, "filling"),
        (libc::SIGKILL, "capacity"),
        (libc::SIGKILL, "filling"),
    ] {
        let place = place();
        // A killed one keeps the rows of the run that it was in, for `latlab recover`.
        let mut child = Command::new(LATLAB)
            .args(arguments(place.path()))
            .env("TMPDIR", place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("latlab runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(at) {
            line.clear();
            assert!(
                stderr.read_line(&mut line).expect("text") > 0,
                "it ended before {at}"
            );
        }
        let pid = child.id();
        // SAFETY: numbers only; the process is this test's own.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).expect("text");
        let status = child.wait().expect("it ends");
        if signal == libc::SIGKILL {
            assert_ne!(left(pid, place.path()), Vec::<String>::new());
            let place_of = place.path().display().to_string();
            let files = files(place.path());
            let next = ["run", "programmed", "--files", &files, "-n", "1"];
            let recovered = match at {
                "capacity" => latlab(&["recover", "--place", &place_of]),
                // The next run that starts a server removes it, too.
                _ => latlab(&next),
            };
            let said = [recovered.stdout, recovered.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let disk = format!("took down the disk study-{pid}, which a killed latlab had left");
            assert!(said.contains(&disk), "{said}");
            assert_eq!(left(pid, place.path()), Vec::<String>::new(), "{said}");
            continue;
        }
        assert_eq!(left(pid, place.path()), Vec::<String>::new());
        if rest.contains("cannot confine") {
            continue;
        }
        assert_eq!(status.code(), Some(125), "{rest}");
        assert!(rest.contains("interrupted"), "{rest}");
    }
}

/// Complete results are printed and kept, and the exit status says that some are missing.
#[test]
fn an_interrupted_study_keeps_what_is_whole() {
    if skipped("an_interrupted_study_keeps_what_is_whole") {
        return;
    }
    let place = place();
    let whole = ["--no-record", "--format", "json"].map(String::from);
    let mut child = Command::new(LATLAB)
        .args(arguments(place.path()))
        .args(whole)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("latlab runs");
    let pid = child.id();
    // All runs of the first server, and one of two loads of the second.
    let first = place.path().join("study/apache-event/load-0.500-1.parquet");
    while !first.exists() && child.try_wait().expect("a state").is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: numbers only; the process is this test's own.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGINT) }, 0);
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(left(pid, place.path()), Vec::<String>::new());
    if stderr.contains("cannot confine") {
        debox_skipped::skipped(&format!(
            "an_interrupted_study_keeps_what_is_whole: {stderr}"
        ));
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kept = std::fs::read_to_string(place.path().join("study/study.json")).expect("it is kept");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    assert_eq!(printed, kept);
    let schemas = Schemas::all();
    let schema = schemas.named("latlab-study-1.json");
    assert_eq!(
        errors(&schemas.validator(schema), &kept),
        Vec::<String>::new()
    );
    assert_eq!(kept["interrupted"], true);
    let loads = |server: usize| kept["servers"][server]["loads"].as_array().map(Vec::len);
    assert_eq!((loads(0), loads(1)), (Some(2), Some(1)));
    assert!(place.path().join("study/study.md").exists());
}

#[test]
fn what_cannot_be_studied_is_said_at_once() {
    if skipped("what_cannot_be_studied_is_said_at_once") {
        return;
    }
    let place = place();
    let output = place.path().join("study").display().to_string();
    for (more, why) in [
        (&["no-such-server"][..], "there is no server no-such-server"),
        (&["--size", "50M", "--memory", "80M"], "the disk never read"),
        (
            &["--duration", "2s", "--warmup", "2s"],
            "nothing would be measured",
        ),
    ] {
        let output = latlab(&[&["study", "-o", &output][..], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(
        std::fs::read_dir(place.path()).expect("the place").count(),
        0
    );
}
