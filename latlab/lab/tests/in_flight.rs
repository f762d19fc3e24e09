//! Requests in flight at the edges of the measured time, and Little's law. Requests that hang are detected
//! even if they began in the warm-up.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use serde_json::Value;
use support::{errors, latlab, number, run, server};

/// A server that never answers on its first connections, and immediately on the others.
fn half_deaf(silent: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let accepted = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let number = accepted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                    if number >= silent {
                        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        if stream.write_all(reply).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

fn figure(value: &Value, pointer: &str) -> f64 {
    let figure = value.pointer(pointer).and_then(Value::as_f64);
    figure.unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

const TIMES: [&str; 6] = ["--warmup", "500ms", "--duration", "2s", "--timeout", "4s"];

/// A closed loop without think time always has all of its connections in flight.
#[test]
fn requests_of_the_warm_up_that_hang_are_counted() {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet").display().to_string();
    let url = half_deaf(8);
    let all = [&["-c", "64", "-o", &rows], &TIMES[..]].concat();
    let summary = run(&url, &all);
    let flight = &summary["in_flight"];
    // All of them began in the warm-up: among the measured requests there is no error.
    assert_eq!(errors(&summary, "timeout"), 0, "{summary:#}");
    assert_eq!(number(flight, "/carried_errors/timeout"), 8, "{flight:#}");
    assert_eq!(number(flight, "/at_begin"), 64, "{flight:#}");
    assert_eq!(number(flight, "/at_end"), 64, "{flight:#}");
    // Between a reply and its next request, a client has none in flight.
    let mean = figure(flight, "/mean");
    assert!((60.0..64.001).contains(&mean), "{flight:#}");
    let unanswered = figure(flight, "/unanswered_mean");
    assert!((8.0..8.5).contains(&unanswered), "{flight:#}");
    let product = figure(flight, "/throughput_times_latency");
    assert!((52.0..57.0).contains(&product), "{flight:#}");
    assert_eq!(flight["littles_law"], "fails", "{flight:#}");

    let analyzed = latlab(&["analyze", &rows]);
    let text = String::from_utf8_lossy(&analyzed.stdout).replace("\n  ", " ");
    assert!(text.contains("Little's law fails"), "{text}");
    assert!(text.contains("8 of the 64 requests"), "{text}");

    // The same in words, and in a procedure's output.
    let said = latlab(
        &[
            &["run", &url, "--max-lateness", "1h", "-c", "8"],
            &TIMES[..],
        ]
        .concat(),
    );
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(!text.contains("Little's law fails"), "{text}");
    let url = half_deaf(8);
    let all = [
        &["run", &url, "--max-lateness", "1h", "-c", "64"],
        &TIMES[..],
    ]
    .concat();
    let text = String::from_utf8_lossy(&latlab(&all).stdout).into_owned();
    assert!(
        text.contains("WARNING: 8 of the 64 requests that were in flight"),
        "{text}"
    );
    assert!(text.contains("WARNING: Little's law fails"), "{text}");
    let url = half_deaf(8);
    let all = [
        &["capacity", &url, "--repeats", "1", "-c", "64"],
        &TIMES[..],
    ]
    .concat();
    let stderr = String::from_utf8_lossy(&latlab(&all).stderr).into_owned();
    assert!(stderr.contains("WARNING: 8 requests"), "{stderr}");
}

/// From the programmed service time: 4 clients that ask all the time, or 200 requests/s of 20 ms each.
#[test]
fn littles_law_holds_on_a_server_that_answers() {
    let (_server, url) = server(&["--service", "fixed:20ms"]);
    let closed = run(
        &url,
        &[&["-c", "4", "--processes", "2"], &TIMES[..]].concat(),
    );
    let open = ["--rate", "200", "--gaps", "constant"];
    let open = run(&url, &[&open, &TIMES[..]].concat());
    for (summary, least, most) in [(&closed, 3.8, 4.001), (&open, 3.9, 8.0)] {
        let flight = &summary["in_flight"];
        let mean = figure(flight, "/mean");
        assert!((least..most).contains(&mean), "{summary:#}");
        assert!(figure(flight, "/unanswered_mean") < 1e-3, "{summary:#}");
        assert_eq!(flight["littles_law"], "holds", "{summary:#}");
        assert_eq!(
            flight["carried_errors"].as_object().map(|all| all.len()),
            Some(0)
        );
    }
}

/// A request that is in flight when the measured time begins, and is answered later, is no error.
#[test]
fn requests_longer_than_the_measured_time_cannot_be_checked() {
    let (_server, url) = server(&["--service", "fixed:1s"]);
    let all = ["-c", "2", "--warmup", "500ms", "--duration", "1200ms"];
    let summary = run(&url, &all);
    let flight = &summary["in_flight"];
    assert_eq!(number(flight, "/at_begin"), 2, "{flight:#}");
    assert_eq!(flight["littles_law"], "too_short", "{flight:#}");
}
