//! Requests of other forms: methods, headers and bodies arrive as requested; redirects are counted; HdrHistogram
//! files are written; and the progress shows rate and latency.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use support::{errors, latlab, number, run, server, LATLAB};

/// What a server received: the lines of the head, and the body.
#[derive(Debug, Clone, PartialEq)]
struct Got {
    lines: Vec<String>,
    body: Vec<u8>,
}

impl Got {
    fn values(&self, name: &str) -> Vec<&str> {
        let headers = self.lines[1..]
            .iter()
            .filter_map(|line| line.split_once(": "));
        let its = headers.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        its.map(|(_, value)| value).collect()
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Got> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end_matches("\r\n") {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let mut got = Got {
        lines,
        body: Vec::new(),
    };
    let length = got
        .values("content-length")
        .first()
        .map_or(0, |value| value.parse().expect("a length"));
    got.body = vec![0; length];
    stream.read_exact(&mut got.body).ok()?;
    Some(got)
}

/// A server that keeps what it receives. `reply` gets the number of earlier requests on the connection; without a
/// reply, the connection is closed.
fn keeping(
    reply: impl Fn(usize) -> Option<&'static str> + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<Got>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/a?b=1",
        listener.local_addr().expect("it has one")
    );
    let all = Arc::new(Mutex::new(Vec::new()));
    let (kept, reply) = (Arc::clone(&all), Arc::new(reply));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
            std::thread::spawn(move || {
                let mut before = 0;
                while let Some(got) = read_request(&mut stream) {
                    kept.lock().expect("no test panicked").push(got);
                    let Some(reply) = reply(before) else {
                        return;
                    };
                    if stream.get_mut().write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                    before += 1;
                }
            });
        }
    });
    (url, all)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn methods_headers_and_bodies_arrive_as_they_were_asked_for() {
    let (url, got) = keeping(|_| Some(OK));
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("body");
    let body: Vec<u8> = (0..=255).cycle().take(3000).collect();
    std::fs::write(&file, &body).expect("own directory");
    let file = format!("@{}", file.display());
    let header = [
        "-H",
        "X-A:  1, 2",
        "-H",
        "Host: other.example",
        "-H",
        "x-a: 3",
    ];
    let shape = [&["-X", "PATCH", "--body", &file], &header[..]].concat();
    let summary = run(&url, &[&shape[..], &["-n", "20", "-c", "2"]].concat());
    assert_eq!(number(&summary, "/ok"), 20, "{summary:#}");
    let got = got.lock().expect("no test panicked");
    assert_eq!(got.len(), 20);
    for got in got.iter() {
        assert_eq!(got.lines[0], "PATCH /a?b=1 HTTP/1.1");
        assert_eq!(got.values("x-a"), ["1, 2", "3"]);
        assert_eq!(got.values("host"), ["other.example"]);
        assert_eq!(got.values("user-agent"), ["latlab"]);
        assert_eq!(got.body, body);
    }
}

/// A body that fits neither into a socket's buffers nor into one write.
#[test]
fn a_large_body_arrives_whole_and_a_text_is_posted() {
    let (url, got) = keeping(|_| Some(OK));
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("body");
    let body: Vec<u8> = (0..12u32 << 20).map(|at| ((at * 31) >> 8) as u8).collect();
    std::fs::write(&file, &body).expect("own directory");
    let file = format!("@{}", file.display());
    let summary = run(&url, &["--data", &file, "-n", "3", "-c", "1"]);
    assert_eq!(number(&summary, "/ok"), 3, "{summary:#}");
    let summary = run(&url, &["-b", "a=1&b=2", "-n", "1", "-c", "1"]);
    assert_eq!(number(&summary, "/ok"), 1, "{summary:#}");
    let got = got.lock().expect("no test panicked");
    assert!(got[..3].iter().all(|got| got.body == body));
    assert_eq!(got[3].lines[0], "POST /a?b=1 HTTP/1.1");
    assert_eq!(got[3].body, b"a=1&b=2");
}

#[test]
fn requests_that_cannot_be_sent_are_refused() {
    for (wrong, why) in [
        (&["-H", "a b: c"][..], "expected a name and a value"),
        (&["-H", "Content-Length: 3"], "set by latlab"),
        (&["-H", "Host: a", "-H", "host: b"], "there twice"),
        (&["-X", "G ET"], "expected a method"),
        (&["-X", "CONNECT"], "tunnel"),
        (&["--body", "@/none/such"], "/none/such"),
        (&["--insecure"], "are for https"),
    ] {
        let output = latlab(&[&["run", "http://127.0.0.1:1/"], wrong].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 125)), "{wrong:?}");
        assert!(stderr.contains(why), "{wrong:?}: {stderr}");
    }
}

#[test]
fn replies_to_head_have_no_body() {
    let (url, got) = keeping(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"));
    let summary = run(&url, &["-X", "HEAD", "-n", "10", "-c", "1"]);
    assert_eq!(number(&summary, "/ok"), 10, "{summary:#}");
    assert_eq!(number(&summary, "/connections_opened"), 1, "{summary:#}");
    assert_eq!(got.lock().expect("no test panicked").len(), 10);
}

#[test]
fn redirects_are_counted_by_status_and_not_followed() {
    let moved =
        "HTTP/1.1 301 Moved\r\nLocation: https://else.example/\r\nContent-Length: 0\r\n\r\n";
    let not_modified = "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n";
    let (url, got) = keeping(move |before| {
        Some(match before % 4 {
            0 => OK,
            1 | 2 => moved,
            _ => not_modified,
        })
    });
    let summary = run(&url, &["-n", "40", "-c", "1"]);
    assert_eq!(number(&summary, "/ok"), 40, "{summary:#}");
    assert_eq!(number(&summary, "/redirects/301"), 20, "{summary:#}");
    assert_eq!(number(&summary, "/redirects/304"), 10, "{summary:#}");
    assert_eq!(summary["location"], "https://else.example/");
    assert_eq!(got.lock().expect("no test panicked").len(), 40);
    let text = latlab(&["run", &url, "-n", "4", "-c", "1", "--max-lateness", "1h"]);
    let text = String::from_utf8_lossy(&text.stdout);
    let line = "3 of 4 good replies have a status of 3xx, which is not followed (301: 2, 304: 1; the first leads to \
        https://else.example/)";
    assert!(text.contains(line), "{text}");
}

/// The server closes a connection while the second request is on its way: only idempotent requests may be repeated.
#[test]
fn only_idempotent_requests_are_sent_again() {
    for (method, again) in [
        ("PUT", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
    ] {
        let (url, _) = keeping(|before| (before == 0).then_some(OK));
        let summary = run(&url, &["-X", method, "-n", "4", "-c", "1"]);
        let lost = errors(&summary, "closed") + errors(&summary, "reset");
        assert_eq!(
            number(&summary, "/retried") > 0,
            again,
            "{method}: {summary:#}"
        );
        assert_eq!(lost > 0, !again, "{method}: {summary:#}");
    }
}

#[test]
fn latencies_are_kept_as_hdrhistogram_does() {
    let (_server, url) = server(&["--service", "fixed:5ms"]);
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let (text, log) = (path("all.hgrm"), path("all.hlog"));
    let load = ["--rate", "200", "--duration", "2500ms", "--warmup", "500ms"];
    let files = ["--hgrm", &text, "--hlog", &log];
    let summary = run(&url, &[&load[..], &files].concat());
    let good = number(&summary, "/ok");
    let text = std::fs::read_to_string(text).expect("it was written");
    let last = text.lines().rfind(|line| !line.starts_with('#'));
    let cells: Vec<f64> = last
        .expect("rows")
        .split_whitespace()
        .map(|cell| cell.parse().expect("a number"))
        .collect();
    assert_eq!(cells[2], good as f64, "{text}");
    let most = number(&summary, "/latency_from_intended/max_ns") as f64 / 1e6;
    assert!((cells[0] / most - 1.0).abs() < 1e-3, "{most}: {text}");
    assert!(
        text.contains(&format!("Total count    = {good:>12}]")),
        "{text}"
    );
    let log = std::fs::read(log).expect("it was written");
    let entries: Vec<_> = IntervalLogIterator::new(&log)
        .map(|entry| entry.expect("it can be read"))
        .collect();
    let begins: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match entry {
            LogEntry::Interval(its) if its.tag().is_none() => Some(its.start_timestamp().as_secs()),
            _ => None,
        })
        .collect();
    assert_eq!(begins[..2], [0, 1], "{begins:?}");
}

#[test]
fn a_file_is_not_written_over_another_that_is_needed() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let (body, other) = (path("body"), path("other"));
    std::fs::write(&body, "text").expect("own directory");
    let at_body = format!("@{body}");
    for outputs in [
        ["--hgrm", &body, "--hlog", &other],
        ["--hgrm", &other, "--hlog", &other],
    ] {
        let asked = ["run", "http://127.0.0.1:1/", "-n", "1", "--body", &at_body];
        let output = latlab(&[&asked[..], &outputs].concat());
        assert_eq!(output.status.code(), Some(125), "{outputs:?}");
    }
    assert_eq!(std::fs::read_to_string(&body).expect("it is there"), "text");
}

/// Both ends of a terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both numbers are written; there is no name to be written, and nothing to be set.
    let opened = unsafe {
        libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        )
    };
    assert_eq!(opened, 0, "no terminal");
    // SAFETY: the descriptors are new and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn a_terminal_shows_the_rate_and_the_latency_of_now_and_a_file_shows_nothing() {
    let (_server, url) = server(&["--service", "fixed:20ms"]);
    let load = ["run", &url, "--rate", "100", "-d", "4s", "--processes", "2"];
    let (ours, theirs) = terminal();
    let mut child = Command::new(LATLAB)
        .args(load)
        .args(["--max-lateness", "1h"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(theirs))
        .spawn()
        .expect("latlab runs");
    let mut shown = Vec::new();
    // Reading ends with an error when the other end is closed.
    let _ = std::fs::File::from(ours).read_to_end(&mut shown);
    child.wait().expect("it ends");
    let shown = String::from_utf8_lossy(&shown);
    let now = shown.rsplit("now ").next().expect("it is never empty");
    let rate: f64 = now
        .split(" requests/s")
        .next()
        .and_then(|rate| rate.parse().ok())
        .unwrap_or_else(|| panic!("{shown:?}"));
    assert!((40.0..180.0).contains(&rate), "{shown:?}");
    assert!(
        now.contains(", p50 2") && now.contains(", p99 "),
        "{shown:?}"
    );
    // Where no killed run has left anything that it would tell about.
    let place = tempfile::tempdir().expect("a directory");
    let output = Command::new(LATLAB)
        .args(load)
        .args(["--max-lateness", "1h"])
        .env("TMPDIR", place.path())
        .current_dir(&place)
        .stdin(Stdio::null())
        .output()
        .expect("latlab runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
