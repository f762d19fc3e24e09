// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that other people wrote, against applications in Python and C.

use std::path::Path;
use std::process::{Command, Output};

use debox_skipped::skipped;

use super::exchange::good;
use super::program::{wait_until, Program};

fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program)
        .args(arguments)
        .env("NO_PROXY", "*")
        .output();
    match output {
        Ok(output) => Some(output),
        Err(_) => {
            skipped(&format!("{program} is not installed"));
            None
        }
    }
}

/// Asks with curl, wrk, ab and Python's requests.
fn ask(program: &Program, small: &str, long: &str) {
    let url = |path: &str| format!("http://{}{path}", program.address);
    if let Some(output) = run(
        "curl",
        &["-sS", "--fail", &url(small), &url(long), &url(small)],
    ) {
        assert!(output.status.success(), "{output:?}");
        assert!(!output.stdout.is_empty());
    }
    if let Some(output) = run("wrk", &["-t1", "-c8", "-d1s", &url(small)]) {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("requests in"), "{text}");
        assert!(
            !text.contains("Socket errors") && !text.contains("Non-2xx"),
            "{text}"
        );
    }
    if let Some(output) = run("ab", &["-q", "-k", "-n", "200", "-c", "4", &url(small)]) {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("Failed requests:        0\n"),
            "{text}{output:?}"
        );
        assert!(text.contains("Keep-Alive requests:    200\n"), "{text}");
    }
    let session = format!(
        "import requests\ns = requests.Session()\ns.trust_env = False\n\
         for n in range(20):\n\
         \x20 assert s.get({:?}).status_code == 200\n\
         \x20 assert s.post({:?}, data=b'x' * n * 9000).status_code == 200\n",
        url(small),
        url(small)
    );
    match run("python3", &["-c", "import requests"]) {
        Some(output) if output.status.success() => {
            let output = run("python3", &["-c", &session]).expect("it was there");
            assert!(output.status.success(), "{output:?}");
        }
        _ => skipped("Python has no requests"),
    }
}

#[test]
fn clients_of_others_are_served_by_python() {
    let program = good(", processes = 2");
    ask(&program, "/app/pid", "/app/stream");
    assert_eq!(program.count("flash_upstream_failures_total"), 0);
    wait_until("all connections back", || {
        program.count("flash_application_connections") == 0
    });
}

#[test]
fn clients_of_others_are_served_by_c() {
    let place = tempfile::tempdir().expect("a directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../application/c");
    let out = format!("OUT={}", place.path().display());
    let built = Command::new("make")
        .arg("-C")
        .arg(&sources)
        .arg(&out)
        .output();
    let Some(built) = built.ok().filter(|_| run("cc", &["--version"]).is_some()) else {
        return skipped("there is no make, or no compiler of C");
    };
    assert!(built.status.success(), "{built:?}");
    let config = format!(
        "[[server]]\n[[server.location]]\npath = \"/app\"\n\
         application = {{ command = [\"{}/hello\"], processes = 2 }}\n",
        place.path().display()
    );
    let program = Program::start(&config, &[]);
    ask(&program, "/app/", "/app/stream");
    let answer = program.ask("POST", "/app/echo", "Content-Length: 5\r\n\r\nhello");
    assert_eq!(answer.body, "hello");
    let stream = program.ask("GET", "/app/stream", "");
    assert!(stream.body.ends_with("\r\n0\r\n\r\n"), "{stream:?}");
    assert_eq!(program.count("flash_upstream_failures_total"), 0);
    assert!(!program.end().contains("the application"));
}
