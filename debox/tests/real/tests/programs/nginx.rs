// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx under load: an event loop that should sleep in one place only, where it is idle.

use std::path::Path;

use debox_real::bare;
use debox_real::free_port;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::Scratch;

const REQUESTS: u64 = 20_000;

/// Nothing outside the directory is read or written; one worker, in the foreground.
fn configure(directory: &Path, port: u16) {
    for name in ["html", "logs"] {
        std::fs::create_dir(directory.join(name)).expect("scratch directory is writable");
    }
    std::fs::write(directory.join("html/page.html"), "x".repeat(4000)).expect("writable");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path logs/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\n\
         error_log logs/error.log;\nevents {{ worker_connections 256; }}\n\
         http {{\n  access_log logs/access.log;\n  sendfile on;\n  keepalive_requests 100000;\n\
         {temporary}  server {{ listen 127.0.0.1:{port}; root html; }}\n}}\n"
    );
    std::fs::write(directory.join("nginx.conf"), text).expect("scratch directory is writable");
}

/// Asks it to end when the last connection has.
#[track_caller]
fn quit(directory: &Path) {
    let pid = std::fs::read_to_string(directory.join("nginx.pid")).expect("nginx wrote its pid");
    let pid: i32 = pid.trim().parse().expect("a process id");
    // SAFETY: kill takes no memory.
    unsafe { libc::kill(pid, libc::SIGQUIT) };
}

fn nginx(tap: Tap) {
    let _turn = take_turn();
    if !tap.works("nginx_sleeps_where_it_is_idle") {
        return;
    }
    let (program, load) = (require("nginx"), require("ab"));
    let (scratch, port) = (Scratch::new(), free_port());
    configure(scratch.path(), port);
    let text = |path: &Path| path.display().to_string();
    let command = [
        text(&program),
        "-p".into(),
        text(scratch.path()),
        "-c".into(),
        "nginx.conf".into(),
        "-e".into(),
        "logs/start.log".into(),
    ];
    let url = format!("http://127.0.0.1:{port}/page.html");
    let ask = [
        text(&load),
        "-q".into(),
        "-k".into(),
        "-n".into(),
        REQUESTS.to_string(),
        "-c".into(),
        "8".into(),
        url,
    ];

    let mut answers = String::new();
    let story = tap.serve(&command, port, || {
        answers = String::from_utf8_lossy(&bare(&ask, scratch.path()).stdout).into_owned();
        quit(scratch.path());
    });

    let said = |words: &str| {
        let squeezed = answers.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            squeezed.contains(words),
            "ab does not say `{words}`:\n{answers}"
        );
    };
    said(&format!("Complete requests: {REQUESTS}"));
    said("Failed requests: 0");
    said("Document Length: 4000 bytes");
    let log = std::fs::read_to_string(scratch.file("logs/access.log")).expect("an access log");
    assert_eq!(log.lines().count() as u64, REQUESTS);
    assert_eq!(
        std::fs::read_to_string(scratch.file("logs/error.log")).unwrap_or_default(),
        ""
    );

    // One file sent and one line logged for each request.
    assert!(story.run.call("sendfile").number("calls") >= REQUESTS);
    assert!(story.run.call("write").number("calls") >= REQUESTS);
    if tap == Tap::Kernel {
        let idle = story.labelled("epoll_wait", "epoll");
        assert!(idle.count > 0, "{:#}", story.run.report["sleeps"]);
        story.all_of_class("epoll_wait", "idle");
        // The master waits for signals, the worker for requests; whatever else is not idle.
        let servers = story.thread_sum("nginx", "blocked_ns");
        story.at_least(
            90,
            story.class("idle").blocked_ns,
            servers,
            "nginx sleeps when idle",
        );
        for call in ["sendfile", "recvfrom", "writev", "accept4"] {
            assert_eq!(story.slept(Some(call), |_| true).count, 0, "a {call} slept");
        }
    }
}

#[test]
fn nginx_sleeps_where_it_is_idle() {
    nginx(Tap::Kernel);
}

#[test]
fn nginx_sleeps_where_it_is_idle_user_tap() {
    nginx(Tap::User);
}
