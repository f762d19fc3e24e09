//! A server with known service times: the laboratory measures these times.

mod support;

use std::fs::File;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use support::{errors, files, latlab, number, run, server};

const MS: i64 = 1_000_000;

#[test]
fn a_fixed_service_time_is_returned() {
    let (_server, url) = server(&["--service", "fixed:5ms"]);
    for more in [
        &["-c", "4", "-n", "400"][..],
        &["--rate", "200", "--duration", "2s"],
    ] {
        let summary = run(&url, more);
        assert_eq!(errors(&summary, "timeout"), 0);
        for from in ["latency_from_start", "latency_from_intended"] {
            assert!(
                number(&summary, &format!("/{from}/p5_ns")) >= 5 * MS,
                "{summary:#}"
            );
            assert!(
                number(&summary, &format!("/{from}/p50_ns")) < 25 * MS,
                "{summary:#}"
            );
        }
    }
}

#[test]
fn a_heavy_tail_is_returned() {
    // Median of a Pareto distribution: the minimum times 2^(1/a); the 99th percentile: times 100^(1/a).
    let (_server, url) = server(&["--service", "pareto:4ms,2"]);
    let summary = run(&url, &["--rate", "300", "--duration", "5s"]);
    let (p50, p99) = ("/latency_from_start/p50_ns", "/latency_from_start/p99_ns");
    assert!(number(&summary, p50) as f64 >= 4e6 * 1.35, "{summary:#}");
    assert!(
        (number(&summary, p50) as f64) < 4e6 * 1.41 * 4.0,
        "{summary:#}"
    );
    assert!(
        (25 * MS..200 * MS).contains(&number(&summary, p99)),
        "{summary:#}"
    );
}

/// Section 2.2 of the thesis: one of a thousand requests is late, and throughput does not show it.
#[test]
fn every_stalled_request_is_seen() {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet");
    let (_server, url) = server(&["--service", "stall:80ms/100"]);
    let output = rows.display().to_string();
    let summary = run(
        &url,
        &["-c", "1", "-n", "1000", "--duration", "60s", "-o", &output],
    );
    assert_eq!(number(&summary, "/ok"), 1000);
    assert!(
        number(&summary, "/latency_from_start/p50_ns") < 20 * MS,
        "{summary:#}"
    );
    let late: Vec<usize> = column(&rows, "end_ns")
        .iter()
        .zip(column(&rows, "start_ns"))
        .enumerate()
        .filter(|(_, (end, start))| **end - start >= 80 * MS)
        .map(|(index, _)| index + 1)
        .collect();
    for stalled in (100..=1000).step_by(100) {
        assert!(late.contains(&stalled), "{stalled} is not among {late:?}");
    }
}

#[test]
fn inverted_service_is_inverted_in_the_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let files = files(place.path());
    let rows = place.path().join("rows.parquet");
    let (_server, url) = server(&["--service", "inverted:200ms"]);
    let output = rows.display().to_string();
    run(
        &url,
        &[
            "--files",
            &files,
            "-c",
            "32",
            "-n",
            "2000",
            "--duration",
            "60s",
            "-o",
            &output,
        ],
    );
    let latency = |from: i64, to: i64| {
        let ends = column(&rows, "end_ns");
        let starts = column(&rows, "start_ns");
        let sizes = column(&rows, "size");
        let mut found: Vec<i64> = (0..sizes.len())
            .filter(|row| (from..to).contains(&sizes[*row]))
            .map(|row| ends[row] - starts[row])
            .collect();
        found.sort_unstable();
        found[found.len() / 2]
    };
    assert!(latency(0, 10_000) >= 190 * MS);
    assert!(latency(400_000, 1_000_000) < 190 * MS);
}

/// No coordinated omission: requests that were due while the server stalled have waited, too.
#[test]
fn an_open_loop_counts_the_waits_of_all() {
    let (_server, url) = server(&["--service", "stall:600ms/200"]);
    let summary = run(
        &url,
        &[
            "--rate",
            "200",
            "--gaps",
            "constant",
            "--duration",
            "2s",
            "-c",
            "1",
        ],
    );
    assert_eq!(number(&summary, "/requests"), 400);
    // Two of 400 were slow to serve; 60 % of a second's requests wait for one of them.
    assert!(
        number(&summary, "/latency_from_start/p95_ns") < 300 * MS,
        "{summary:#}"
    );
    assert!(
        number(&summary, "/latency_from_intended/p90_ns") >= 300 * MS,
        "{summary:#}"
    );
}

#[test]
fn rates_beyond_capacity_queue_and_nothing_is_left_out() {
    let (_server, url) = server(&["--service", "fixed:10ms", "--serial"]);
    // 100 requests/s can be served.
    let summary = run(
        &url,
        &[
            "--rate",
            "50,400",
            "--gaps",
            "constant",
            "--duration",
            "2s",
            "-c",
            "8",
            "--timeout",
            "2s",
        ],
    );
    assert_eq!(number(&summary, "/requests"), 450, "{summary:#}");
    let served = summary["throughput_rps"].as_f64().expect("a number");
    assert!(served < 101.0, "{served}");
    assert!(errors(&summary, "unsent") > 0, "{summary:#}");
    let total =
        number(&summary, "/ok") as u64 + errors(&summary, "unsent") + errors(&summary, "timeout");
    assert_eq!(total, 450, "{summary:#}");
    assert!(number(&summary, "/latency_from_intended/max_ns") >= 1000 * MS);
}

/// A table shows a difference only if chance would do so in at most 5 % of all tables: here, six repeats that
/// agree.
#[test]
fn a_difference_is_shown_with_an_error_rate_for_the_whole_table() {
    let (_a, a) = server(&["--service", "fixed:5ms"]);
    let (_b, b) = server(&["--service", "fixed:20ms"]);
    let compare = |repeats: &str, format: &str| {
        let times = [
            "--duration",
            "400ms",
            "--warmup",
            "100ms",
            "--max-lateness",
            "1h",
        ];
        let of = [
            "compare",
            &a,
            &b,
            "-c",
            "4",
            "--repeats",
            repeats,
            "--format",
            format,
        ];
        let output = latlab(&[&of[..], &times].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let result: Value = serde_json::from_str(&compare("6", "json")).expect("JSON");
    assert_eq!(result["error_rate"], 0.05);
    let measures = result["measures"].as_array().expect("a list");
    assert_eq!(measures.len(), 5);
    let find = |name: &str| {
        measures
            .iter()
            .find(|one| one["measure"] == name)
            .expect("it")
    };
    for name in ["throughput_rps", "mean_ns", "p50_ns"] {
        let one = find(name);
        assert_eq!(
            (&one["differs"], &one["difference_shown"]),
            (&true.into(), &true.into())
        );
        assert!(
            one["p_value"].as_f64().is_some_and(|p| p <= 0.05),
            "{one:#}"
        );
    }
    // Five repeats that agree have a probability of 1 in 16.
    let text = compare("5", "text");
    assert_eq!(text.matches("no difference shown").count(), 5, "{text}");
    assert!(text.contains("by 5 repeats: 6 are needed"), "{text}");
}

/// Each step has its own entry, which agrees with the rows of its time, by the nearest rank.
#[test]
fn each_step_of_a_rate_is_by_itself() {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet");
    let output = rows.display().to_string();
    // 200 requests/s can be served: requests queue in the last step only.
    let (_server, url) = server(&["--service", "fixed:5ms", "--serial"]);
    let more = [
        "--rate",
        "20,50,400",
        "--gaps",
        "constant",
        "--duration",
        "3s",
    ];
    let more = [
        &more[..],
        &[
            "--warmup",
            "500ms",
            "-c",
            "16",
            "--timeout",
            "5s",
            "-o",
            &output,
        ],
    ]
    .concat();
    let summary = run(&url, &more);
    let steps = summary["steps"].as_array().expect("steps");
    let analyzed = latlab(&["analyze", &output, "--format", "json"]);
    let analyzed: Value = serde_json::from_slice(&analyzed.stdout).expect("JSON");
    let (intended, ends) = (column(&rows, "intended_ns"), column(&rows, "end_ns"));
    // Half of the first second is warm-up.
    let expected = [
        (20.0, 500, 1000, 10),
        (50.0, 1000, 2000, 50),
        (400.0, 2000, 3000, 400),
    ];
    assert_eq!(steps.len(), expected.len(), "{summary:#}");
    for (index, (rps, begin_ms, end_ms, requests)) in expected.into_iter().enumerate() {
        let (step, of_rows) = (&steps[index], &analyzed["steps"][index]);
        assert_eq!(
            (number(step, "/requests"), number(step, "/ok")),
            (requests, requests)
        );
        assert_eq!(number(of_rows, "/requests"), requests, "{of_rows:#}");
        for step in [step, of_rows] {
            assert_eq!(step["offered_rps"].as_f64(), Some(rps), "{step:#}");
            assert_eq!(number(step, "/begin_ns"), begin_ms * MS);
            assert_eq!(number(step, "/end_ns"), end_ms * MS);
        }
        let within = begin_ms * MS..end_ms * MS;
        let mut its: Vec<i64> = (0..ends.len())
            .filter(|row| within.contains(&intended[*row]))
            .map(|row| ends[row] - intended[row])
            .collect();
        its.sort_unstable();
        for (percent, ours, theirs) in [(50, "p50", "p50"), (95, "p95", "p95"), (99, "p99", "p99")]
        {
            let rank = (its.len() * percent).div_ceil(100) - 1;
            assert_eq!(
                number(of_rows, &format!("/percentiles/{theirs}")),
                its[rank],
                "{of_rows:#}"
            );
            let found = number(step, &format!("/latency_from_intended/{ours}_ns"));
            // The summary's percentiles come from a histogram.
            let off = (found - its[rank]).abs() as f64 / its[rank] as f64;
            assert!(off < 2e-3, "{found} and {}", its[rank]);
        }
        let ended = ends.iter().filter(|end| within.contains(end)).count() as f64;
        let seconds = (end_ms - begin_ms) as f64 / 1e3;
        let served = step["throughput_rps"].as_f64().expect("a number");
        assert!((served - ended / seconds).abs() < 1e-6, "{step:#}");
    }
    let median = |index: usize| number(&steps[index], "/latency_from_intended/p50_ns");
    assert!(median(2) > 100 * MS && median(1) < 100 * MS, "{summary:#}");
    // The same in words.
    let text = [&["run", &url, "--max-lateness", "1h"], &more[..]].concat();
    let text = String::from_utf8_lossy(&latlab(&text).stdout).into_owned();
    assert!(
        text.contains("20, then 50, then 400 requests/s offered"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("400 ")),
        "{text}"
    );
    let text = String::from_utf8_lossy(&latlab(&["analyze", &output]).stdout).into_owned();
    assert!(text.contains("Latency by step of the rate"), "{text}");
    // One rate has no steps.
    assert!(run(&url, &["--rate", "50", "-d", "500ms"])["steps"].is_null());
}

#[test]
fn processes_share_the_work_and_their_rows_merge() {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet");
    let files = files(place.path());
    let (_server, url) = server(&[]);
    let output = rows.display().to_string();
    let all = [
        "--files",
        &files,
        "--mix",
        "full",
        "--processes",
        "2",
        "-c",
        "10",
        "-n",
        "1001",
        "--duration",
        "60s",
        "--per-connection",
        "5",
        "--verify",
        "100%",
        "-o",
        &output,
    ];
    let summary = run(&url, &all);
    assert_eq!(number(&summary, "/ok"), 1001, "{summary:#}");
    assert!(number(&summary, "/connections_opened") >= 1001 / 5);
    let file = File::open(&rows).expect("rows");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let meta = metadata
        .into_iter()
        .flatten()
        .find(|pair| pair.key == "latlab.requests/1")
        .and_then(|pair| pair.value.clone())
        .expect("the metadata");
    let meta: Value = serde_json::from_str(&meta).expect("JSON");
    assert_eq!(meta["schema"], "latlab.requests/1");
    assert_eq!(
        (&meta["mode"], &meta["connections"]),
        (&"closed".into(), &10.into())
    );
    assert_eq!(meta["fileset"]["directories"], 1);
    let names: Vec<String> = reader
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let expected = [
        "intended_ns",
        "start_ns",
        "first_byte_ns",
        "end_ns",
        "size",
        "received",
        "status",
        "connection",
        "process",
        "kind",
        "class",
        "path",
        "error",
        "local_port",
        "connect_ns",
        "tls_ns",
    ];
    assert_eq!(names, expected);
    let mut processes: Vec<i64> = column(&rows, "process");
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes, [0, 1]);
    let (starts, firsts) = (column(&rows, "start_ns"), column(&rows, "first_byte_ns"));
    let (intended, ends) = (column(&rows, "intended_ns"), column(&rows, "end_ns"));
    for row in 0..starts.len() {
        let times = [intended[row], starts[row], firsts[row], ends[row]];
        assert!(times.is_sorted(), "{times:?}");
    }
    assert_eq!(column(&rows, "size"), column(&rows, "received"));
    assert!(column(&rows, "local_port").iter().all(|port| *port > 0));
}

#[test]
fn logs_lists_and_sizes_are_asked_for() {
    let place = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let (_server, url) = server(&[]);
    let log = "h - - [d] \"GET /bytes/100 HTTP/1.1\" 200 100\nh - - [d] \"PUT / HTTP/1.1\" 200 1\n";
    let output = latlab(&[
        "run",
        &url,
        "--log",
        &write("log", log),
        "-n",
        "10",
        "-c",
        "1",
    ]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 that are not GET"));
    let urls = write("urls", "/\n/bytes/5\n/missing\n");
    let summary = run(&url, &["--urls", &urls, "-n", "30", "-c", "1"]);
    assert_eq!(
        (number(&summary, "/ok"), errors(&summary, "status")),
        (20, 10)
    );
    assert_eq!(summary["statuses"], serde_json::json!({"404": 10}));
    let text = latlab(&[
        "run",
        &url,
        "--urls",
        &urls,
        "-n",
        "30",
        "-c",
        "1",
        "--max-lateness",
        "1h",
    ]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.contains("Errors: status 10 (by status: 404: 10)"),
        "{text}"
    );
    let sizes = write("sizes", "1K 9\n900K 1\n");
    let summary = run(
        &url,
        &[
            "--sizes",
            &sizes,
            "-n",
            "200",
            "-c",
            "2",
            "--duration",
            "60s",
        ],
    );
    assert_eq!(number(&summary, "/ok"), 200, "{summary:#}");
}

#[test]
fn a_generator_that_is_late_says_so_and_keeps_the_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet").display().to_string();
    let (_server, url) = server(&[]);
    let output = latlab(&[
        "run",
        &url,
        "--rate",
        "100",
        "--duration",
        "1s",
        "--max-lateness",
        "0s",
        "-o",
        &rows,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("NOT VALID: the generator was late"), "{text}");
    assert!(std::path::Path::new(&rows).exists());
}

#[test]
fn a_profile_is_of_loads_relative_to_the_capacity() {
    let place = tempfile::tempdir().expect("a directory");
    let profile = place.path().join("profile");
    let (_server, url) = server(&["--service", "fixed:5ms", "--serial"]);
    let output = latlab(&[
        "profile",
        &url,
        "--loads",
        "0.2,0.8",
        "-c",
        "8",
        "--repeats",
        "2",
        "--duration",
        "1s",
        "--warmup",
        "200ms",
        "--max-lateness",
        "1h",
        "--format",
        "json",
        "-o",
        &profile.display().to_string(),
    ]);
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let capacity = result["capacity_rps"].as_f64().expect("a number");
    assert!((20.0..201.0).contains(&capacity), "{capacity}");
    let loads = result["loads"].as_array().expect("a list");
    assert_eq!(loads.len(), 2);
    for load in loads {
        assert_eq!(load["runs"].as_array().map(Vec::len), Some(2));
        assert!(load["p50_ns"]["median"].as_f64().expect("a number") >= 5e6);
        for file in load["files"].as_array().expect("a list") {
            assert!(profile.join(file.as_str().expect("a name")).exists());
        }
    }
    assert!(profile.join("summary.json").exists());
}

/// A connection asks for 400,000 bits in a second. A server that takes 40 ms for each KiB gives 200,000.
#[test]
fn connections_conform_as_far_as_the_server_is_fast_enough() {
    let place = tempfile::tempdir().expect("a directory");
    let files = files(place.path());
    let conform = |service: &str| {
        let (_server, url) = server(&["--service", service]);
        let output = latlab(&[
            "conform",
            &url,
            "--files",
            &files,
            "--fixed-set",
            "--least",
            "4",
            "--most",
            "8",
            "--duration",
            "4s",
            "--warmup",
            "500ms",
            "--max-lateness",
            "1h",
            "--format",
            "json",
        ]);
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // 900 KiB take 18.4 s at 400,000 bits/s, but these runs take 3.5 s.
        let why = result["too_short"].as_str().expect("a reason");
        assert!(why.contains("3.5 s") && why.contains("18.4 s"), "{why}");
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("too short to be believed"), "{said}");
        (number(&result, "/score"), result["at_least"] == true)
    };
    assert_eq!(conform("by-size:40ms"), (0, false));
    let (score, at_least) = conform("fixed:0s");
    assert!(score == 8 && at_least, "{score}");
}

/// Each request is intended to start at its time in the log, whatever the server does: this one serves one at
/// a time, slower than requests come.
#[test]
fn a_log_is_replayed_at_its_own_times() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("access.log").display().to_string();
    // Milliseconds since the first request; the last but one was written late.
    let times = [0, 40, 45, 900, 1_400, 2_100, 2_050];
    let line = |(number, ms): (usize, &i64)| {
        format!(
            "10.0.0.1 - - [21/Nov/2026:23:59:{:02}.{:03} +0100] \"GET /bytes/{} HTTP/1.1\" 200 1 \"-\" \"x\"\n",
            50 + ms / 1000,
            ms % 1000,
            100 + number
        )
    };
    let text: String = times.iter().enumerate().map(line).collect();
    std::fs::write(&log, text).expect("own directory");
    let (_server, url) = server(&["--service", "fixed:150ms", "--serial"]);
    let rows = place.path().join("rows.parquet");
    let output = rows.display().to_string();
    let more = ["--log", &log, "--log-speed", "2", "-o", &output];
    for processes in ["1", "2"] {
        let summary = run(&url, &[&more[..], &["--processes", processes]].concat());
        assert_eq!(
            (number(&summary, "/ok"), &summary["mode"]),
            (7, &"open".into())
        );
        let (mut sizes, intended) = (column(&rows, "size"), column(&rows, "intended_ns"));
        let mut came: Vec<(i64, i64)> = intended.into_iter().zip(sizes.drain(..)).collect();
        came.sort_unstable();
        let mut asked: Vec<(i64, i64)> = times
            .iter()
            .zip(100..)
            .map(|(ms, size)| (ms * MS / 2, size))
            .collect();
        asked.sort_unstable();
        assert_eq!(came, asked);
        // The second and the third waited for those before them, counted from their intended start.
        assert!(number(&summary, "/latency_from_intended/max_ns") >= 300 * MS);
        let length = summary["seconds"].as_f64().expect("a number");
        assert!((1.05..1.06).contains(&length), "{length}");
    }
    let part = run(&url, &[&more[..], &["--duration", "500ms"]].concat());
    assert_eq!(number(&part, "/requests"), 4, "{part:#}");
    let wrong = latlab(&["run", &url, "--log-speed", "2"]);
    assert_eq!(wrong.status.code(), Some(2));
    // Both servers get the whole log, at the same times.
    let twice = ["--repeats", "2", "--warmup", "0s", "--format", "json"];
    let directory = place.path().join("compared");
    let kept = directory.display().to_string();
    let compare = [
        &["compare", &url, &url, "--max-lateness", "1h", "--log", &log][..],
        &["--log-speed", "2", "-o", &kept],
        &twice,
    ];
    let compared = latlab(&compare.concat());
    let said = String::from_utf8_lossy(&compared.stderr);
    assert_eq!(compared.status.code(), Some(0), "{said}");
    let compared: Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    for side in ["a", "b"] {
        for repeat in [0, 1] {
            let run = &compared[format!("{side}_runs")][repeat];
            assert_eq!((number(run, "/ok"), &run["mode"]), (7, &"open".into()));
            let rows = directory.join(format!("{side}-{}.parquet", repeat + 1));
            let mut intended = column(&rows, "intended_ns");
            intended.sort_unstable();
            let mut asked: Vec<i64> = times.iter().map(|ms| ms * MS / 2).collect();
            asked.sort_unstable();
            assert_eq!(intended, asked);
        }
    }
    let rate = ["--log-speed", "2", "--rate", "10"];
    let both = latlab(&[compare[0], &rate, &twice].concat());
    assert_eq!(both.status.code(), Some(2));
}

/// The values of a numeric column; 0 for nulls.
fn column(path: &std::path::Path, name: &str) -> Vec<i64> {
    use arrow_array::{Array, Int64Array, UInt16Array};
    let file = File::open(path).expect("rows");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
    let mut values = Vec::new();
    for batch in reader.build().expect("rows") {
        let batch = batch.expect("a batch");
        let array = batch.column_by_name(name).expect(name);
        if let Some(array) = array.as_any().downcast_ref::<Int64Array>() {
            values.extend(array.iter().map(|value| value.unwrap_or(0)));
        } else if let Some(array) = array.as_any().downcast_ref::<UInt16Array>() {
            values.extend(array.iter().map(|value| i64::from(value.unwrap_or(0))));
        } else {
            panic!("{name} is {:?}", array.data_type());
        }
    }
    values
}
