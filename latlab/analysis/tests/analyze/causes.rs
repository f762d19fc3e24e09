//! Requests joined with a history of the server whose delays are known.

use std::path::{Path, PathBuf};

use debox_history::{Limits, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, Sleep};
use serde_json::json;

use crate::files::{json, meta, parquet, run, Place, Row, STARTED_NS};

/// The run starts 50 s after boot.
const RUN_BEGIN: u64 = 50_000_000_000;

fn history(path: &Path, host: &str, filter: Option<&str>, calls: &[Call]) {
    let meta = Meta {
        schema: SCHEMA.to_string(),
        host: host.to_string(),
        cpus: 2,
        realtime_offset_ns: STARTED_NS - RUN_BEGIN as i64,
        filter: filter.map(str::to_string),
        complete: true,
        ..Meta::default()
    };
    let mut writer = Writer::create(path, meta, Limits::default()).expect("a history");
    for call in calls {
        writer.append(call).expect("a row");
    }
    writer.finish().expect("the end");
}

fn sleep(begin_ns: u64, blocked_ns: u64, label: &str, class: &str) -> Sleep {
    Sleep {
        begin_ns,
        blocked_ns,
        label: label.into(),
        class: class.into(),
        site: "somewhere".into(),
        resource: (class == "disk").then(|| "/srv/cold".into()),
        waker_kind: "hardirq".into(),
        ..Sleep::default()
    }
}

fn call(tid: u32, name: &str, begin: u64, end: u64, ret: i64, sleeps: Vec<Sleep>) -> Call {
    let blocked_ns = sleeps.iter().map(|sleep| sleep.blocked_ns).sum();
    Call {
        pid: 100,
        tid,
        comm: if tid == 100 { "server" } else { "logger" }.into(),
        name: name.into(),
        number: 1,
        start_ns: begin,
        wall_ns: end - begin,
        budget: Budget {
            cpu_ns: end - begin - blocked_ns,
            blocked_ns,
            ..Budget::default()
        },
        ret,
        sleeps,
        ..Call::default()
    }
}

/// A request every ms, served by one thread in 100 us. Every 200th is for a cold file, whose `openat` sleeps for 5
/// ms, and requests that arrive meanwhile wait. Another thread sleeps on a lock all the time.
fn server() -> (Vec<Row>, Vec<Call>) {
    let (mut rows, mut calls) = (Vec::new(), Vec::new());
    let mut free = RUN_BEGIN;
    let mut waiting = 0;
    for number in 0..4000u64 {
        let sent = RUN_BEGIN + number * 1_000_000;
        if free < sent {
            let begin = free;
            let idle = sleep(begin, sent - begin, "epoll", "idle");
            calls.push(call(
                100,
                "epoll_wait",
                begin,
                sent,
                waiting + 1,
                vec![idle],
            ));
            free = sent;
            waiting = 0;
        } else {
            waiting += 1;
        }
        let is_cold = number % 200 == 100;
        let begin = free;
        free += if is_cold { 5_100_000 } else { 100_000 };
        let sleeps = if is_cold {
            vec![sleep(begin + 20_000, 5_000_000, "page read", "disk")]
        } else {
            Vec::new()
        };
        calls.push(call(
            100,
            "openat",
            begin + 10_000,
            free - 10_000,
            7,
            sleeps,
        ));
        let begin = (sent - RUN_BEGIN) as i64;
        rows.push(Row::new(
            begin,
            (free - sent) as i64,
            100 + (number % 7) as i64,
        ));
        let lock = sleep(sent + 1_000, 998_000, "futex", "lock");
        calls.push(call(101, "futex", sent, sent + 1_000_000, 0, vec![lock]));
    }
    (rows, calls)
}

fn files(place: &Place) -> (PathBuf, PathBuf) {
    let (rows, calls) = server();
    let (requests, server) = (place.path("requests.parquet"), place.path("server.parquet"));
    parquet(&requests, &meta(json!({})), &rows);
    history(&server, "here", None, &calls);
    (requests, server)
}

#[test]
fn the_cold_file_is_the_cause_and_not_the_lock() {
    let place = Place::new();
    let (requests, server) = files(&place);
    let found = json(&requests, &["--history", server.to_str().expect("a name")]);
    let causes = &found["server"]["causes"];
    let first = &causes["causes"][0];
    assert_eq!(
        (
            &first["label"],
            &first["call"],
            &first["comm"],
            &first["resource"]
        ),
        (
            &json!("page read"),
            &json!("openat"),
            &json!("server"),
            &json!("/srv/cold")
        )
    );
    // The slowest hundredth are the cold requests and those that came right after them.
    assert_eq!(causes["slow"]["requests"], 40);
    assert_eq!(first["part"], 1.0);
    let slow = first["slow_ns"].as_f64().expect("ns");
    assert!((4_500_000.0..5_000_001.0).contains(&slow), "{slow}");
    assert_eq!(first["longest_ns"], 5_000_000);
    assert_eq!(first["ordinary_ns"], 0.0);
    let lock = causes["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .find(|c| c["label"] == "futex");
    let excess = lock.expect("the lock")["excess_ns"].as_f64().expect("ns");
    assert!(excess.abs() < 100_000.0, "{excess}");
    let finding = found["findings"][0]["text"].as_str().expect("a finding");
    assert!(
        finding.contains("server waited for page read (/srv/cold) in openat"),
        "{finding}"
    );
    // 4.5 of 4.65 ms on average; in a random interval, such a wait takes 0.13 ms.
    assert!(
        finding.ends_with("That explains 94 % of their time."),
        "{finding}"
    );
    assert!(
        !found["findings"].to_string().contains("is not explained"),
        "{finding}"
    );
}

/// In the 5.1 ms of a slow request, the server sleeps 1 ms on the disk and computes between two calls; the rest is
/// in no row.
#[test]
fn computing_between_calls_is_a_cause_and_what_is_not_explained_is_told() {
    for computing in [3_500_000, 800_000] {
        let place = Place::new();
        let (mut rows, mut calls) = (Vec::new(), Vec::new());
        let mut free = RUN_BEGIN;
        for number in 0..4000u64 {
            let sent = RUN_BEGIN + number * 10_000_000 + 100;
            let is_slow = number % 200 == 100;
            let idle = sleep(free, sent - free, "epoll", "idle");
            calls.push(call(100, "epoll_wait", free, sent, 1, vec![idle]));
            free = sent;
            if is_slow {
                let read = sleep(sent, 1_000_000, "page read", "disk");
                calls.push(call(100, "openat", sent, sent + 1_000_000, 7, vec![read]));
                free += 1_000_000 + computing;
            }
            calls.push(call(100, "writev", free, free + 50_000, 7, Vec::new()));
            free += 50_000;
            let took = if is_slow { 5_100_000 } else { 200_000 };
            rows.push(Row::new((sent - RUN_BEGIN) as i64, took, 100));
        }
        for (call, ordinal) in calls.iter_mut().zip(1..) {
            call.ordinal = ordinal;
        }
        let (requests, server) = (place.path("requests.parquet"), place.path("server.parquet"));
        parquet(&requests, &meta(json!({})), &rows);
        history(&server, "here", None, &calls);
        let server = server.to_str().expect("a name");
        let found = json(&requests, &["--history", server, "--slow", "99.5"]);
        let causes = &found["server"]["causes"];
        let all = causes["causes"].as_array().expect("causes");
        let its = all.iter().find(|cause| cause["label"] == "computing");
        let its = its.unwrap_or_else(|| panic!("{all:#?}"));
        assert_eq!(
            (&its["call"], &its["comm"]),
            (&json!("(user)"), &json!("server"))
        );
        let slow = its["slow_ns"].as_f64().expect("ns");
        assert!((slow - computing as f64).abs() < 100_000.0, "{slow}");
        let explains = its["explains"].as_f64().expect("a part");
        assert!(
            (explains - computing as f64 / 5.1e6).abs() < 0.03,
            "{explains}"
        );
        // Both together.
        let explained = causes["explained"].as_f64().expect("a part");
        assert!(
            (explained - (1e6 + computing as f64) / 5.1e6).abs() < 0.05,
            "{explained}"
        );
        let findings = found["findings"].to_string();
        assert!(
            findings.contains("server was computing between calls"),
            "{findings}"
        );
        assert_eq!(findings.matches("That explains").count(), 2, "{findings}");
        let is_little = explained < 0.8;
        assert_eq!(
            findings.contains("is not explained"),
            is_little,
            "{findings}"
        );
    }
}

#[test]
fn events_and_runnable_threads_are_told() {
    let place = Place::new();
    let (requests, server) = files(&place);
    let found = json(&requests, &["--history", server.to_str().expect("a name")]);
    let burst = &found["server"]["burstiness"];
    assert_eq!(burst["threads"][0]["comm"], "server");
    assert_eq!(burst["ready"]["median"], 1);
    // 5 ms are 5 requests, plus the one that ends them.
    assert_eq!(burst["ready"]["max"], 6);
    let runnable = &burst["runnable"];
    assert_eq!(runnable["threads"], 2);
    let none = runnable["none"].as_f64().expect("a part");
    assert!((0.85..0.9).contains(&none), "{none}");
    let parts = runnable["histogram"].as_array().expect("bars").iter();
    let sum: f64 = parts.map(|bar| bar[2].as_f64().expect("a part")).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
}

/// A request every ms; for every 200th, a thread without an event loop sleeps 5 ms. Another thread sleeps all the
/// time.
#[test]
fn a_timer_that_requests_wait_for_is_told_and_another_is_not() {
    let place = Place::new();
    let (mut rows, mut calls) = (Vec::new(), Vec::new());
    for number in 0..4000u64 {
        let sent = RUN_BEGIN + number * 1_000_000;
        let took = if number % 200 == 100 {
            5_100_000
        } else {
            100_000
        };
        if took > 1_000_000 {
            let timer = sleep(sent + 50_000, 5_000_000, "timer", "idle");
            calls.push(call(
                100,
                "clock_nanosleep",
                sent,
                sent + 5_090_000,
                0,
                vec![timer],
            ));
        }
        rows.push(Row::new((sent - RUN_BEGIN) as i64, took, 100));
        let timer = sleep(sent + 1_000, 998_000, "timer", "idle");
        calls.push(call(
            101,
            "nanosleep",
            sent,
            sent + 1_000_000,
            0,
            vec![timer],
        ));
    }
    let (requests, server) = (place.path("requests.parquet"), place.path("server.parquet"));
    parquet(&requests, &meta(json!({})), &rows);
    history(&server, "here", None, &calls);
    let server = server.to_str().expect("a name");
    let found = json(&requests, &["--history", server, "--slow", "99.5"]);
    let causes = found["server"]["causes"]["causes"]
        .as_array()
        .expect("causes");
    assert_eq!(causes.len(), 1, "{causes:#?}");
    assert_eq!(causes[0]["call"], "clock_nanosleep");
    // The thread that sleeps by itself blocks no other.
    let slow = &found["server"]["causes"]["slow"];
    assert_eq!(slow["blocked_ns"], 0.0, "{slow:#}");
}

/// An event loop that reads for 9 ms of every 10, and a helper that waits for a lock all the time: all requests
/// are alike, and the loop is the cause.
#[test]
fn a_loop_that_holds_up_all_requests_is_told() {
    let place = Place::new();
    let (mut rows, mut calls) = (Vec::new(), Vec::new());
    for round in 0..400u64 {
        let begin = RUN_BEGIN + round * 10_000_000;
        let idle = sleep(begin, 500_000, "epoll", "idle");
        calls.push(call(
            100,
            "epoll_wait",
            begin,
            begin + 500_000,
            5,
            vec![idle],
        ));
        let read = sleep(begin + 610_000, 9_000_000, "page read", "disk");
        calls.push(call(
            100,
            "sendfile",
            begin + 600_000,
            begin + 9_900_000,
            5,
            vec![read],
        ));
        let lock = sleep(begin, 9_999_000, "futex", "lock");
        calls.push(call(101, "futex", begin, begin + 10_000_000, 0, vec![lock]));
        for request in 0..5u64 {
            let sent = begin - RUN_BEGIN + request * 100_000;
            rows.push(Row::new(
                sent as i64,
                9_900_000 - request as i64 * 100_000,
                100,
            ));
        }
    }
    let (requests, server) = (place.path("requests.parquet"), place.path("server.parquet"));
    parquet(&requests, &meta(json!({})), &rows);
    history(&server, "here", None, &calls);
    let found = json(&requests, &["--history", server.to_str().expect("a name")]);
    let findings = found["findings"].to_string();
    let told = "an event loop of server is blocked most of the time";
    assert!(
        findings.contains(told) && findings.contains("page read in sendfile"),
        "{findings}"
    );
}

#[test]
fn what_cannot_be_joined_is_refused_or_told() {
    let place = Place::new();
    let (requests, history_path) = files(&place);
    let server = server();
    let name = history_path.to_str().expect("a name");
    let calls: Vec<Call> = (0..10)
        .map(|at| call(100, "openat", at * 1000, at * 1000 + 10, 1, Vec::new()))
        .collect();
    let other = place.path("other.parquet");
    history(&other, "here", None, &calls);
    let error = run(&requests, &["--history", other.to_str().expect("a name")])
        .expect_err("no common time");
    assert!(error.contains("no time in common"), "{error}");
    history(&other, "there", None, &calls);
    let error =
        run(&requests, &["--history", other.to_str().expect("a name")]).expect_err("two clocks");
    assert!(error.contains("clocks of two machines"), "{error}");
    history(&other, "here", Some("blocked > 1ms"), &server.1);
    let found = json(&requests, &["--history", other.to_str().expect("a name")]);
    assert_eq!(found["server"]["burstiness"]["runnable"], json!(null));
    let csv = place.file("plain.csv", "size,latency_ms\n1,2\n3,1\n");
    let found = json(&csv, &["--history", name]);
    assert!(found["server"]["no_causes"]
        .as_str()
        .expect("why")
        .contains("when they were sent"));
    assert!(found["server"]["burstiness"]["ready"]["calls"].as_u64() > Some(1000));
    let error = run(&history_path, &[]).expect_err("a history");
    assert!(error.contains("give it as --history"), "{error}");
    let error = run(
        &requests,
        &["--history", requests.to_str().expect("a name")],
    )
    .expect_err("requests");
    assert!(error.contains("not a history"), "{error}");
}
