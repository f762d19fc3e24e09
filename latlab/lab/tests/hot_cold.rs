//! A complete, small `latlab hot-cold`: hot files really are in memory, and the disk really brings cold ones. Needs
//! root, and leaves nothing behind.

mod support;

use std::path::Path;

use serde_json::{json, Value};
use support::latlab;
use support::schema::{errors, Schemas};
use support::slow_disk::{is_skipped, place};

const NAME: &str = "latlab-hot-cold-1.json";

fn skipped(test: &str) -> bool {
    is_skipped(test, &["nginx"], true)
}

fn count(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

fn figure(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

#[test]
fn hot_requests_are_for_memory_and_cold_ones_for_the_disk() {
    if skipped("hot_requests_are_for_memory_and_cold_ones_for_the_disk") {
        return;
    }
    let place = place();
    let output = place.path().join("hot-cold").display().to_string();
    let parent = place.path().display().to_string();
    let done = latlab(&[
        "hot-cold",
        "flash",
        "nginx",
        "-o",
        &output,
        "--place",
        &parent,
        "--levels",
        "0.5",
        "--repeats",
        "2",
        "--duration",
        "2s",
        "--warmup",
        "500ms",
        "--hot-rate",
        "200",
        "--hot-files",
        "20",
        "--missing",
        "30%",
        "--max-lateness",
        "1h",
        "--format",
        "json",
    ]);
    let stderr = String::from_utf8_lossy(&done.stderr);
    // 3: the generator had no CPU on a busy machine.
    assert!(matches!(done.status.code(), Some(0 | 3)), "{stderr}");
    let found: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let terms = &found["terms"];
    // A read takes 5 ms. Names that exist take two, for the directory and the data; the others take one.
    assert!(figure(terms, "/cold_open_ns") >= 5e6);
    let reads = figure(terms, "/disk_reads_per_second");
    assert!(reads > 20.0 && reads < 205.0, "{reads}");
    let per_name = figure(terms, "/disk_reads_per_name");
    assert!(per_name > 1.2 && per_name < 3.0, "{per_name}");
    let servers = found["servers"].as_array().expect("servers");
    let names: Vec<&str> = servers
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["flash", "nginx"]);
    for server in servers {
        let levels = server["levels"].as_array().expect("levels");
        // Without cold requests comes first, whether it was asked for or not.
        let parts: Vec<f64> = levels.iter().map(|level| figure(level, "/level")).collect();
        assert_eq!(parts, [0.0, 0.5]);
        for level in levels {
            let runs = level["runs"].as_array().expect("runs");
            assert_eq!(runs.len(), 2);
            for run in runs {
                assert_eq!(run["wrong"], json!([]), "{stderr}");
                for when in ["hot_before", "hot_after"] {
                    let hot = &run["caches"][when];
                    assert_eq!(count(hot, "/pages"), 40);
                    assert_eq!(count(hot, "/pages_not_cached"), 0);
                    assert_eq!(count(hot, "/names_not_cached"), 0);
                }
                assert_eq!(count(run, "/caches/cold_names_cached"), 0);
                let rows = Path::new(&output).join(run["file"].as_str().expect("a name"));
                assert!(rows.exists());
            }
            assert!(count(level, "/hot/requests") > 300);
            assert_eq!(count(level, "/hot/failed"), 0, "{level:#}");
            assert!(figure(level, "/hot/p50_ns/median") > 0.0);
            let cold = count(level, "/cold/requests") + count(level, "/missing/requests");
            if figure(level, "/level") == 0.0 {
                assert_eq!(cold, 0);
                assert_eq!(figure(level, "/hot_ratio/p99/median"), 1.0);
                continue;
            }
            // The disk served the cold names: one read of 5 ms for each, at least.
            assert!(count(level, "/cold/requests") > 0 && count(level, "/missing/requests") > 0);
            for run in runs {
                let asked = count(run, "/caches/cold_names");
                assert!(count(run, "/caches/disk_reads") >= asked, "{run:#}");
            }
            // 404 is the right answer for a name that does not exist.
            assert_eq!(count(level, "/cold/failed"), 0, "{level:#}");
            assert_eq!(count(level, "/missing/failed"), 0, "{level:#}");
            assert!(figure(level, "/cold/p50_ns/median") >= 5e6);
            assert!(figure(level, "/missing/p50_ns/median") >= 5e6);
        }
    }
    as_the_schema_says(&found);
    let text = std::fs::read_to_string(Path::new(&output).join("hot-cold.txt")).expect("tables");
    for words in ["which is 100 %", "flash (", "nginx (", "hot p99.9"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    goals_are_judged_by_what_was_measured(&found, place.path());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&parent), "{mounts}");
}

/// What `flash/bench/hot_cold.py` says of results in which flash's hot p99 with cold requests is this many times that
/// without, and its cold requests are as slow.
fn judged(found: &Value, place: &Path, growth: [f64; 2]) -> String {
    let mut found = found.clone();
    for (repeat, growth) in growth.into_iter().enumerate() {
        for (level, times) in [(0, 1.0), (1, growth)] {
            let run = format!("/servers/0/levels/{level}/runs/{repeat}");
            let run = found.pointer_mut(&run).expect("a run");
            run["summary"]["refused"] = Value::Null;
            run["hot"]["p99_ns"]["value"] = json!(100_000.0 * times);
        }
    }
    let path = place.join("judged.json");
    std::fs::write(&path, found.to_string()).expect("own directory");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../flash/bench/hot_cold.py");
    let done = std::process::Command::new("python3")
        .args([script, "--from"])
        .arg(&path)
        .output()
        .expect("python3 can be executed");
    let stderr = String::from_utf8_lossy(&done.stderr);
    // Not all goals can be met: nginx-tuned was not measured.
    assert_eq!(done.status.code(), Some(1), "{stderr}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn goals_are_judged_by_what_was_measured(found: &Value, place: &Path) {
    let said = judged(found, place, [1.1, 1.4]);
    assert!(said.contains("      met: 1.25 (1.10 to 1.40)"), "{said}");
    assert!(
        said.contains("nginx-tuned at 100 %\n      not judged"),
        "{said}"
    );
    assert!(said.contains("p50 of cold names at 50%"), "{said}");
    let said = judged(found, place, [2.0, 3.0]);
    assert!(
        said.contains("      not met: 2.50 (2.00 to 3.00)"),
        "{said}"
    );
    let said = judged(found, place, [1.0, 2.0]);
    assert!(
        said.contains("not shown, the repeats disagree: 1.50"),
        "{said}"
    );
}

/// The schema describes everything and nothing else.
fn as_the_schema_says(found: &Value) {
    let schemas = Schemas::all();
    let schema = schemas.named(NAME);
    assert!(jsonschema::meta::is_valid(schema));
    let validator = schemas.validator(schema);
    assert_eq!(errors(&validator, found), Vec::<String>::new());
    for place in [
        "",
        "/terms",
        "/servers/0",
        "/servers/0/levels/0",
        "/servers/0/levels/0/runs/0",
    ] {
        let fields = found.pointer(place).and_then(Value::as_object);
        for field in fields.expect("an object").keys() {
            let mut less = found.clone();
            let object = less.pointer_mut(place).and_then(Value::as_object_mut);
            object.expect("an object").remove(field);
            assert!(!validator.is_valid(&less), "valid without {place}/{field}");
        }
    }
    for (place, wrong) in [
        ("/schema", json!("latlab.hot-cold/2")),
        ("/servers", json!([])),
        ("/terms/hot_rps", json!(0)),
        ("/servers/0/levels/0/hot/p99_ns", json!(1)),
        ("/servers/0/levels/0/runs/0/caches", json!({})),
    ] {
        let mut changed = found.clone();
        *changed.pointer_mut(place).expect("it is there") = wrong;
        assert!(!validator.is_valid(&changed), "{place} may be wrong");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_set_up() {
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        debox_skipped::skipped("what_cannot_be_measured_is_refused: it takes root");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let output = place.path().join("never").display().to_string();
    for (arguments, why) in [
        (&["no-such-server"][..], "there is no server no-such-server"),
        (&["--cold-size", "1K"], "8 KiB or more"),
        (
            &["--duration", "1s", "--warmup", "2s"],
            "nothing would be measured",
        ),
        (
            &["--service", "20us", "--depth", "64"],
            "the disk is too fast",
        ),
    ] {
        let done = latlab(&[&["hot-cold", "-o", &output], arguments].concat());
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(why), "{why} is not in {stderr}");
        assert!(!Path::new(&output).exists());
    }
}
