//! Files with known figures.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::files::{json, json_all, meta, parquet, run, Place, Row};

const EXAMPLE: &str = "size,latency_ms\n1,30\n2,10\n3,20\n4,40\n5,50\n";

#[test]
fn the_worked_example_of_the_paper() {
    let place = Place::new();
    let path = place.file("example.csv", EXAMPLE);
    let found = json(&path, &[]);
    assert_eq!(found["schema"], "latlab.analysis/1");
    assert_eq!(found["requests"], 5);
    assert_eq!(found["service_inversion"], 4.0 / 12.0);
    assert_eq!(found["percentiles"]["p50"], 30_000_000);
    assert_eq!(found["latency"]["mean"], 30_000_000);
    assert_eq!(found["deciles"].as_array().expect("deciles").len(), 10);
    let text = run(&path, &[]).expect("text");
    assert!(text.contains("0.333") && text.contains("30.0 ms"), "{text}");
}

/// The same latencies, to the nanosecond, in each unit, without naming the unit.
#[test]
fn a_unit_that_is_not_named_is_found_by_magnitude() {
    let place = Place::new();
    let written = [
        ("s", ["0.012345678", "0.000345679", "0.040000001"]),
        ("ms", ["12.345678", "0.345679", "40.000001"]),
        ("us", ["12345.678", "345.679", "40000.001"]),
        ("ns", ["12345678", "345679", "40000001"]),
    ];
    for (unit, values) in written {
        let rows = values.map(|value| format!("10,{value}\n")).concat();
        let path = place.file("plain.csv", format!("size,latency\n{rows}"));
        let found = json(&path, &[]);
        assert_eq!(
            (&found["unit"], &found["unit_by_magnitude"]),
            (&json!("ns"), &json!(unit))
        );
        let exact = (
            &found["latency"]["min"],
            &found["percentiles"]["p50"],
            &found["latency"]["max"],
        );
        assert_eq!(
            exact,
            (&json!(345_679), &json!(12_345_678), &json!(40_000_001)),
            "{unit}"
        );
        let caveat = found["caveats"][0].as_str().expect("a caveat");
        assert!(caveat.contains(&format!("taken for {unit},")), "{caveat}");
        assert!(
            caveat.contains("12.3 ms") && caveat.contains("--latency-unit"),
            "{caveat}"
        );
    }
    // A unit that the user names is used.
    let path = place.file("plain.csv", "size;latency\n10;0.5\n20;0.25\n");
    let found = json(&path, &["--latency-unit", "s"]);
    assert_eq!(
        (&found["unit"], &found["unit_by_magnitude"]),
        (&json!("ns"), &json!(null))
    );
    assert_eq!(found["percentiles"]["p50"], 250_000_000);
    assert_eq!(found["service_inversion"], 1.0);
    // The magnitude of zeroes says nothing; the other values keep their digits.
    let path = place.file("zero.csv", "size,latency\n10,0\n20,0\n20,0.25\n");
    let found = json(&path, &[]);
    assert_eq!(
        (&found["unit"], &found["unit_by_magnitude"]),
        (&json!("unstated"), &json!(null))
    );
    assert_eq!(found["latency"]["max"], 0.25);
    let path = place.file("far.csv", "size,latency\n10,1\n20,1\n20,1e300\n");
    let error = run(&path, &[]).expect_err("centuries");
    assert!(error.contains("in the column `latency`"), "{error}");
}

#[test]
fn columns_can_be_named_and_numbered() {
    let place = Place::new();
    let named = place.file(
        "named.csv",
        "\u{feff}\"what, where\",took,KB out\na,3 ms,1\nb,1ms,2\n",
    );
    let options = [
        "--latency-column",
        "took",
        "--size-column",
        "KB out",
        "--size-unit",
        "KiB",
    ];
    let found = json(&named, &options);
    assert_eq!(found["percentiles"]["p99"], 3_000_000);
    assert_eq!(found["series"][0]["size_min"], 1024);
    let numbered = place.file("numbered.csv", "7,12\n9,11\n");
    let options = [
        "--no-header",
        "--latency-column",
        "2",
        "--size-column",
        "1",
        "--latency-unit",
        "us",
    ];
    assert_eq!(json(&numbered, &options)["service_inversion"], 1.0);
    let error = run(&numbered, &[]).expect_err("no names");
    assert!(error.contains("--no-header"), "{error}");
}

#[test]
fn lines_of_json_and_of_vegeta() {
    let place = Place::new();
    let nested = place.file(
        "access.ndjson",
        "{\"request\":{\"uri\":\"/\"},\"response\":{\"latency_us\":\"1500\",\"size\":10}}\n\n\
         {\"response\":{\"latency_us\":900.5,\"size\":20},\"more\":[1]}\n",
    );
    let found = json(&nested, &[]);
    assert_eq!(
        (&found["format"], &found["latency"]["min"]),
        (&json!("ndjson"), &json!(900_500))
    );
    let line = |seq: u32, code: u16, latency: u64, bytes: u64, error: &str| {
        format!(
            "{{\"attack\":\"\",\"seq\":{seq},\"code\":{code},\"timestamp\":\"2024-05-01T10:00:0{seq}.5+02:00\",\
             \"latency\":{latency},\"bytes_out\":0,\"bytes_in\":{bytes},\"error\":\"{error}\",\"body\":\"aGk=\",\
             \"method\":\"GET\",\"url\":\"http://x/\",\"headers\":{{\"A\":[\"b\"]}}}}\n"
        )
    };
    let lines = [
        line(0, 200, 5_000, 100, ""),
        line(1, 200, 4_000, 200, ""),
        line(2, 0, 0, 0, "dial tcp: connection refused"),
        line(3, 503, 10, 3, "503 Service Unavailable"),
    ];
    let found = json(&place.file("vegeta.json", lines.concat()), &[]);
    assert_eq!(
        (&found["format"], &found["requests"]),
        (&json!("vegeta"), &json!(2))
    );
    assert_eq!(found["failed"]["dial tcp: connection refused"], 1);
    assert_eq!(found["failed"]["503 Service Unavailable"], 1);
    assert_eq!(found["seconds"], 1.000004);
    assert_eq!(found["service_inversion"], 1.0);
}

/// The same tables as in the source of `oha --db-url`.
fn oha(path: &std::path::Path, rows: &[(f64, Option<f64>, f64, u16, i64)], with_runs: bool) {
    let database = rusqlite::Connection::open(path).expect("a database");
    let run = if with_runs {
        ", run INTEGER NOT NULL"
    } else {
        ""
    };
    database
        .execute(
            &format!(
                "CREATE TABLE oha (url TEXT NOT NULL, start REAL NOT NULL, start_latency_correction REAL, \
                 end REAL NOT NULL, duration REAL NOT NULL, status INTEGER NOT NULL, len_bytes INTEGER NOT \
                 NULL{run})"
            ),
            (),
        )
        .expect("a table");
    for (number, (start, intended, end, status, bytes)) in rows.iter().enumerate() {
        let duration = end - intended.unwrap_or(*start);
        let values = "'http://x/', ?1, ?2, ?3, ?4, ?5, ?6";
        let run = if with_runs {
            format!(", {}", number / 2)
        } else {
            String::new()
        };
        let row = (start, intended, end, duration, status, bytes);
        database
            .execute(&format!("INSERT INTO oha VALUES ({values}{run})"), row)
            .expect("a row");
    }
}

#[test]
fn the_database_of_oha() {
    let place = Place::new();
    let closed = place.path("closed.db");
    oha(
        &closed,
        &[
            (0.0, None, 0.25, 200, 10),
            (0.25, None, 0.375, 200, 20),
            (0.5, None, 0.6, 404, 5),
        ],
        false,
    );
    let found = json(&closed, &[]);
    assert_eq!(
        (&found["format"], &found["mode"]),
        (&json!("oha"), &json!("closed"))
    );
    assert_eq!(found["percentiles"]["p50"], 125_000_000);
    assert_eq!(
        (&found["requests"], &found["failed"]["status 404"]),
        (&json!(2), &json!(1))
    );
    let open = place.path("open.db");
    oha(
        &open,
        &[
            (0.5, Some(0.25), 0.75, 200, 10),
            (1.0, Some(1.0), 1.125, 200, 20),
        ],
        false,
    );
    assert_eq!(json(&open, &[])["latency"]["max"], 500_000_000);
    assert_eq!(
        json(&open, &["--latency", "sent"])["latency"]["max"],
        250_000_000
    );
    let runs = place.path("runs.db");
    let row = (0.0, None, 0.25, 200, 10);
    oha(&runs, &[row, row, row], true);
    let error = run(&runs, &[]).expect_err("two runs");
    assert!(error.contains("several runs (0, 1)"), "{error}");
    assert_eq!(json(&runs, &["--run", "1"])["requests"], 1);
}

/// A server whose latencies are proportional to the sizes, and its inverse.
fn fair(n: i64, inverse: bool) -> Vec<Row> {
    (0..n)
        .map(|at| {
            let size = 1000 + at * 7919 % n;
            let latency = if inverse { 3 * n - size } else { 2 * size };
            Row {
                connection: (at % 4) as u32,
                ..Row::new(at * 1_000_000, latency * 100, size)
            }
        })
        .collect()
}

#[test]
fn parquet_of_latlab() {
    let place = Place::new();
    let path = place.path("t.parquet");
    let mut rows = fair(5000, false);
    rows[7].error = Some("connection reset");
    rows[207].error = Some("connection reset");
    rows[208].status = 500;
    rows[209].end_ns = None;
    rows[10].size = -1;
    parquet(
        &path,
        &meta(json!({"warmup_ns": 100_000_000, "refused": "the generator was the bottleneck"})),
        &rows,
    );
    let found = json(&path, &[]);
    assert_eq!(
        (&found["requests"], &found["warm_up"]),
        (&json!(4897), &json!(99))
    );
    assert_eq!(found["failed"]["connection reset"], 1);
    assert_eq!(found["failed"]["status 500"], 1);
    let caveat = found["caveats"][0].as_str().expect("a caveat");
    assert!(
        caveat.contains("not the server's: the generator was the bottleneck"),
        "{caveat}"
    );
    assert_eq!(found["failed"]["no answer by the end of the run"], 1);
    assert_eq!(found["service_inversion"], 0.0);
    assert_eq!(
        (&found["load"], &found["data_set_bytes"]),
        (&json!(0.8), &json!(3_000_000_000u64))
    );
    assert_eq!(found["latency_from"], "intended");
    assert!(
        found["inversion"]["corrected"]["utilisation"]
            .as_f64()
            .expect("a number")
            > 0.6
    );
    assert_eq!(found["deciles"][0]["series"], json!([1.0, 0.0, 0.0, 0.0]));
}

/// Ten requests on connection 0 and ten on 1. Six more connections were in use and completed nothing:
/// Jain's index is (10 + 10)² / (8 * (10² + 10²)) = 0.25. A connection that ended before the measured
/// time does not count, and neither do attempts that never became a connection.
#[test]
fn connections_that_got_nothing_done_count_in_jains_index() {
    let place = Place::new();
    let path = place.path("starved.parquet");
    let on = |connection: u32, start_ns: i64| Row {
        connection,
        ..Row::new(start_ns, 5, 10)
    };
    let failed = |connection: u32, start_ns: i64, error: &'static str| Row {
        end_ns: None,
        error: Some(error),
        ..on(connection, start_ns)
    };
    // The warm-up: 9 fails before the warm-up ends; 2 is answered after it.
    let mut rows = vec![on(0, 10), on(9, 20), failed(9, 30, "reset")];
    rows.push(Row {
        end_ns: Some(1_100),
        ..on(2, 900)
    });
    rows.extend((0..20).map(|at| on(at % 2, 2_000 + i64::from(at) * 10)));
    // These began in the warm-up, and were given up after all others had ended. 5 to 7 began later.
    rows.extend((3..5).map(|connection| failed(connection, 50, "timeout")));
    rows.extend((5..8).map(|connection| failed(connection, 2_500, "timeout")));
    let open = meta(json!({"warmup_ns": 1_000, "mode": "open"}));
    parquet(&path, &open, &rows);
    let found = json(&path, &[]);
    assert_eq!(found["requests"], 20);
    assert_eq!(
        (&found["connections_used"], &found["connections_unserved"]),
        (&json!(8), &json!(6))
    );
    assert_eq!(found["jain"]["per_connection"], 0.25);
    let text = run(&path, &[]).expect("figures").replace("\n  ", " ");
    assert!(
        text.contains("0.250 over 8 connections, 6 of them without an answer,"),
        "{text}"
    );
    // Without a local port there was no connection.
    rows.extend((20..30).map(|attempt| Row {
        local_port: 0,
        ..failed(attempt, 2_600, "refused")
    }));
    parquet(&path, &open, &rows);
    assert_eq!(json(&path, &[])["connections_used"], 8);
    // A closed loop keeps the requested number of connections; two of these got no reply.
    let closed = meta(json!({"warmup_ns": 1_000, "mode": "closed", "connections": 10}));
    parquet(&path, &closed, &rows);
    let found = json(&path, &[]);
    assert_eq!(found["connections_unserved"], 8);
    assert_eq!(found["jain"]["per_connection"], 0.2);
    let huge = meta(json!({"warmup_ns": 1_000, "mode": "closed", "connections": u64::MAX}));
    parquet(&path, &huge, &rows);
    assert_eq!(json(&path, &[])["requests"], 20);
    // The same for other tools' files.
    let lines = [
        "connection,latency_us,bytes,status",
        "a,10,5,200",
        "b,10,5,500",
        "a,10,5,200",
        "c,10,5,200",
    ];
    let found = json(&place.file("t.csv", lines.join("\n")), &[]);
    assert_eq!(found["connections_unserved"], 1, "{found:#}");
    // (2 + 1)² / (3 * (4 + 1))
    assert_eq!(found["jain"]["per_connection"], 0.6);
}

#[test]
fn an_open_load_is_counted_from_when_it_was_due() {
    let place = Place::new();
    let path = place.path("late.parquet");
    let rows: Vec<Row> = (0..50)
        .map(|at| Row {
            intended_ns: at * 1000 - 500,
            ..Row::new(at * 1000, 200, 10)
        })
        .collect();
    parquet(&path, &meta(json!({})), &rows);
    assert_eq!(json(&path, &[])["percentiles"]["p50"], 700);
    assert_eq!(
        json(&path, &["--latency", "sent"])["percentiles"]["p50"],
        200
    );
    parquet(
        &path,
        &meta(json!({"mode": "closed", "load": null, "offered_rps": null})),
        &rows,
    );
    assert_eq!(json(&path, &[])["percentiles"]["p50"], 200);
}

#[test]
fn a_server_that_shares_has_nothing_of_its_own() {
    // Requests as an ideal server at 0.9 serves them: the inversion is due to the load alone.
    let place = Place::new();
    let path = place.path("shares.parquet");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut load = latlab_analysis::ideal::Load::default();
    let mut rows = Vec::new();
    let (mut now, mut bytes) = (0.0, 0.0);
    for _ in 0..20_000 {
        now += -(1.0 - random.random::<f64>()).ln() * 100_000.0;
        let size = [500, 3000, 5000, 40_000][random.random_range(0..4)];
        bytes += size as f64;
        load.add(size as f64, now, None);
        rows.push(Row::new(now as i64, 0, size));
    }
    let served = load.share(bytes / (now * 0.9));
    for (row, latency) in rows.iter_mut().zip(&served.latencies) {
        row.end_ns = Some(row.start_ns + *latency as i64);
    }
    parquet(&path, &meta(json!({"load": 0.9})), &rows);
    let found = json(&path, &[]);
    let inversion = found["service_inversion"].as_f64().expect("a number");
    let corrected = found["inversion"]["corrected"]["value"]
        .as_f64()
        .expect("a number");
    assert!(
        inversion > 0.1 && corrected.abs() < 0.01,
        "{inversion} {corrected}"
    );
    // A server that is as slow, but ignores sizes.
    let mut ends: Vec<i64> = rows
        .iter()
        .map(|row| row.end_ns.expect("an end") - row.start_ns)
        .collect();
    ends.shuffle(&mut random);
    for (row, latency) in rows.iter_mut().zip(ends) {
        row.end_ns = Some(row.start_ns + latency);
    }
    parquet(&path, &meta(json!({"load": 0.9})), &rows);
    let found = json(&path, &[]);
    let value = found["service_inversion"].as_f64().expect("a number");
    let none = found["inversion"]["random"].as_f64().expect("a number");
    assert!((value - none).abs() < 0.02, "{value} {none}");
    assert!(
        found["inversion"]["corrected"]["value"]
            .as_f64()
            .expect("a number")
            > 0.1
    );
}

#[test]
fn several_loads_are_told_in_order_and_against_another() {
    let place = Place::new();
    let (low, high) = (place.path("low.parquet"), place.path("high.parquet"));
    parquet(&high, &meta(json!({"load": 0.95})), &fair(5000, true));
    parquet(&low, &meta(json!({"load": 0.2})), &fair(5000, false));
    let against = low.to_str().expect("a name");
    let found = json_all(&[&high, &low], &["--against", against]);
    assert_eq!(found["runs"][0]["name"], "low.parquet");
    assert_eq!(found["runs"][1]["service_inversion"], 1.0);
    let text = found["findings"][0]["text"].as_str().expect("a finding");
    assert!(
        text.contains("service inversion from 0.00 to 1.00"),
        "{text}"
    );
    let verdicts = |at: usize| {
        let differences = found["against"][at]["differences"]
            .as_array()
            .expect("differences");
        differences
            .iter()
            .map(|d| d["verdict"].as_str().expect("one").to_string())
            .collect::<Vec<_>>()
    };
    let (one, other) = (verdicts(0), verdicts(1));
    assert!(
        one.iter().chain(&other).any(|verdict| verdict == "higher"),
        "{one:?} {other:?}"
    );
    assert!(
        one.iter().all(|v| v == "none" || v == "unknown")
            || other.iter().all(|v| v == "none" || v == "unknown")
    );
    let text = crate::files::run_all(&[&high, &low], &[]).expect("text");
    assert!(text.contains("2 runs") && text.contains("0.95"), "{text}");
}
