//! Results of other load generators, run by the tests where they are installed: `latlab analyze` computes the
//! same figures from a file as the tool that wrote it.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{latlab, run, server};

fn installed(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .any(|place| Path::new(place).join(name).is_file())
}

/// A program's output.
fn output(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {stderr}");
    output.stdout
}

fn analyzed(file: &str) -> Value {
    let output = latlab(&["analyze", file, "--format", "json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn figure(value: &Value, pointer: &str) -> f64 {
    let figure = value.pointer(pointer).and_then(Value::as_f64);
    figure.unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

fn near(found: f64, expected: f64, what: &str) {
    let off = (found / expected - 1.0).abs();
    assert!(off < 1e-3, "{what}: {found}, and its maker has {expected}");
}

const SERVICE: [&str; 2] = ["--service", "fixed:5ms"];

/// No tool measures less than the server's service time, and all measure about the same.
fn fits_latlab(report: &Value, url: &str) {
    let own = run(url, &["-c", "4", "-n", "400", "--duration", "60s"]);
    let (p50, own) = (
        figure(report, "/percentiles/p50"),
        figure(&own, "/latency_from_start/p50_ns"),
    );
    assert!(
        p50 >= 5e6 && (0.4..2.5).contains(&(p50 / own)),
        "{p50} ns, latlab {own} ns"
    );
}

#[test]
fn vegeta_s_results_are_read() {
    if !installed("vegeta") {
        debox_skipped::skipped("vegeta_s_results_are_read: vegeta is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let (targets, binary, json) = (path("targets"), path("results.bin"), path("results.json"));
    let attack = |url: &str| {
        let text = format!("GET {url}bytes/2000\nGET {url}bytes/300\n");
        std::fs::write(&targets, text).expect("own directory");
        let load = [
            "-targets",
            &targets,
            "-rate",
            "200",
            "-duration",
            "2s",
            "-output",
            &binary,
        ];
        output("vegeta", &[&["attack"], &load[..]].concat());
        output("vegeta", &["encode", "-output", &json, &binary]);
        let own = output("vegeta", &["report", "-type", "json", &binary]);
        let own: Value = serde_json::from_slice(&own).expect("JSON");
        (analyzed(&json), own)
    };
    let (_server, url) = server(&SERVICE);
    let (report, own) = attack(&url);
    assert_eq!(
        (&report["format"], &report["requests"]),
        (&"vegeta".into(), &400.into())
    );
    near(
        figure(&report, "/latency/mean"),
        figure(&own, "/latencies/mean"),
        "mean",
    );
    near(
        figure(&report, "/latency/max"),
        figure(&own, "/latencies/max"),
        "longest",
    );
    near(
        figure(&report, "/latency/min"),
        figure(&own, "/latencies/min"),
        "shortest",
    );
    assert!(figure(&report, "/service_inversion") > 0.0);
    fits_latlab(&report, &url);

    let faults = [
        "--fault",
        "status/20",
        "--fault",
        "short/50",
        "--fault",
        "reset/80",
    ];
    let (_server, url) = server(&[&SERVICE[..], &faults].concat());
    let (report, own) = attack(&url);
    let failed = report["failed"].as_object().expect("reasons");
    let failures: u64 = failed.values().filter_map(Value::as_u64).sum();
    let succeeded = figure(&own, "/success") * figure(&own, "/requests");
    near(figure(&report, "/requests"), succeeded, "answered");
    assert_eq!(
        failures,
        figure(&own, "/requests") as u64 - figure(&report, "/requests") as u64
    );
    assert!(failed.contains_key("503 Service Unavailable"), "{failed:?}");
    assert!(failed.len() <= 4, "{failed:?}");
}

#[test]
fn oha_s_database_is_read() {
    if !installed("oha") {
        debox_skipped::skipped("oha_s_database_is_read: oha is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let (_server, url) = server(&[&SERVICE[..], &["--fault", "status/20"]].concat());
    for open in [false, true] {
        let database = place
            .path()
            .join(format!("{open}.db"))
            .display()
            .to_string();
        let mut load = vec![
            "--no-tui",
            "--output-format",
            "json",
            "-n",
            "400",
            "-c",
            "4",
        ];
        if open {
            load.extend(["-q", "200", "--latency-correction"]);
        }
        let page = format!("{url}bytes/2000");
        load.extend(["--db-url", &database, &page]);
        let own = output("oha", &load);
        let own: Value = serde_json::from_slice(&own).expect("JSON");
        let report = analyzed(&database);
        let expected = if open {
            ("open", "intended")
        } else {
            ("closed", "sent")
        };
        assert_eq!(
            (&report["mode"], &report["latency_from"]),
            (&expected.0.into(), &expected.1.into())
        );
        let codes = &own["statusCodeDistribution"];
        assert_eq!(
            (&report["requests"], &report["failed"]["status 503"]),
            (&codes["200"], &codes["503"])
        );
        assert_eq!(report["requests"], 380, "{report:#}");
        // oha's figures cover all replies; those with an error take as long in this test.
        let mean = figure(&report, "/latency/mean") / (figure(&own, "/summary/average") * 1e9);
        assert!((0.9..1.1).contains(&mean), "{mean}");
        assert!(figure(&report, "/percentiles/p50") >= 5e6);
        if !open {
            fits_latlab(&report, &url);
        }
    }
}
