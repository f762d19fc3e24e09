// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications whose answers the loop relays, as in the stages before `direct-cgi`, and those that write to the client's
//! socket.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::program::{read, wait_until, Answer, Program};
use crate::support::{application, get};
use crate::{comparable, stages};

/// The first stage in which applications have the client's socket.
const DIRECT: &str = "direct-cgi";

fn start(stage: &str) -> Program {
    let above = format!("stage = \"{stage}\"\nloops = 1\n");
    application("good.py", ", processes = 1", &above)
}

/// What is sent on one connection each.
fn requests() -> Vec<String> {
    let close = "Host: a\r\nConnection: close\r\n";
    let long = "c".repeat(1_000_000);
    let post = |target: &str, fields: &str, content: &str| {
        let length = content.len();
        format!("POST {target} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{content}")
    };
    let mut all: Vec<String> = ["stream", "empty", "none", "error", "split", "bytes?3000000"]
        .iter()
        .flat_map(|target| {
            let of = |method: &str| format!("{method} /app/{target} HTTP/1.1\r\n{close}\r\n");
            [of("GET"), of("HEAD")]
        })
        .collect();
    all.push("GET /app/stream HTTP/1.0\r\n\r\n".to_string());
    all.push(post(
        "/app/ignore",
        &format!("{close}Expect: 100-continue\r\n"),
        "",
    ));
    // The connection is kept, and what is behind a request is not the application's.
    let keeps = "Host: a\r\n";
    all.push(
        [
            post("/app/echo", keeps, "hello"),
            format!("GET /file HTTP/1.1\r\n{keeps}\r\n"),
            post("/app/echo", keeps, &long),
            format!("GET /app/bytes?1500000 HTTP/1.1\r\n{keeps}\r\n"),
            format!("GET /large HTTP/1.1\r\n{keeps}\r\n"),
            post("/app/ignore", keeps, "abc"),
            post(
                "/app/echo",
                &format!("{keeps}Expect: 100-continue\r\n"),
                "abc",
            ),
            format!("GET /app/stream HTTP/1.1\r\n{close}\r\n"),
        ]
        .concat(),
    );
    // Answers that break off, by the program's own word and by its end. The next request is answered by another process.
    for target in ["short", "late-error", "die", "late-die", "stream"] {
        all.push(format!("GET /app/{target} HTTP/1.1\r\n{close}\r\n"));
    }
    all
}

/// Without the fields that tell the files of one server from those of another.
fn of_any_file(mut answer: Vec<u8>) -> Vec<u8> {
    for field in ["\r\nETag: ", "\r\nLast-Modified: "] {
        while let Some(begin) = memchr::memmem::find(&answer, field.as_bytes()) {
            let length = memchr::memmem::find(&answer[begin + 2..], b"\r\n");
            answer.drain(begin..begin + 2 + length.expect("the end of a line"));
        }
    }
    answer
}

/// What comes until the connection ends, and whether that end was a reset.
fn ask(program: &Program, request: &str) -> (Vec<u8>, bool) {
    let mut stream = program.connect();
    let mut sends = stream.try_clone().expect("a descriptor");
    let mut answer = Vec::new();
    let is_reset = std::thread::scope(|scope| {
        scope.spawn(move || {
            sends.write_all(request.as_bytes()).expect("it reads");
            // An answer may have been cut already.
            let _ = sends.shutdown(Shutdown::Write);
        });
        stream.read_to_end(&mut answer).is_err()
    });
    (of_any_file(comparable(answer)), is_reset)
}

/// Status and bytes of each request that was answered, in the access log.
fn logged(program: &Program, lines: usize) -> Vec<(u64, u64)> {
    let log = || read(&program.path("access.log"));
    wait_until("the log", || log().lines().count() == lines);
    let of = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let number = |name: &str| line[name].as_u64().expect("a number");
        (number("status"), number("bytes"))
    };
    log().lines().map(of).collect()
}

#[test]
fn applications_answer_byte_for_byte_the_same_in_each_stage() {
    let requests = requests();
    let logs = requests.len() + 7;
    let today = start("today");
    let expected: Vec<_> = requests.iter().map(|it| ask(&today, it)).collect();
    let resets = expected.iter().filter(|(_, is_reset)| *is_reset).count();
    assert_eq!(resets, 3, "short, late-error and late-die");
    let expected_log = logged(&today, logs);
    let total: usize = expected.iter().map(|(answer, _)| answer.len()).sum();
    assert!(total > 3_000_000 + 1_000_000 + 1_500_000 + (1 << 20));
    std::thread::scope(|scope| {
        for stage in stages() {
            let (requests, expected, expected_log) = (&requests, &expected, &expected_log);
            scope.spawn(move || {
                let program = start(&stage);
                for (request, expected) in requests.iter().zip(expected) {
                    let line = request.lines().next();
                    let answer = ask(&program, request);
                    assert_eq!(answer.1, expected.1, "{stage}: {line:?}");
                    let lengths = (answer.0.len(), expected.0.len());
                    assert!(answer == *expected, "{stage}: {line:?}: {lengths:?}");
                }
                assert_eq!(logged(&program, logs), *expected_log, "{stage}");
                assert_eq!(program.count("flash_application_connections"), 0, "{stage}");
                program.end();
            });
        }
    });
    today.end();
}

#[test]
fn a_program_has_the_clients_socket_from_its_stage_on() {
    let all = stages();
    let first = all.iter().position(|stage| stage == DIRECT);
    let first = first.expect("it is one");
    assert_eq!(
        all[first - 1..first + 2],
        ["no-mmap", DIRECT, "new-sendfile"]
    );
    std::thread::scope(|scope| {
        for (number, stage) in all.iter().enumerate() {
            scope.spawn(move || {
                let program = start(stage);
                let family = get(&program, "/app/family").body;
                let expected = if number < first { "AF_UNIX" } else { "AF_INET" };
                assert_eq!(family, expected, "{stage}");
                // A client that goes costs no process, in the middle of an answer or of its own request.
                for request in [
                    "GET /app/large HTTP/1.1\r\nHost: a\r\n\r\n",
                    "POST /app/part HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\nabc",
                ] {
                    let mut leaves = program.connect();
                    leaves.write_all(request.as_bytes()).expect("it reads");
                    leaves.read_exact(&mut [0; 12]).expect("an answer");
                    drop(leaves);
                    wait_until("the process is back", || {
                        program.count("flash_application_connections") == 0
                    });
                }
                // Its own socket stays as it was: the next answers come to the same connection.
                let mut stream = program.connect();
                for target in ["/app/family", "/large", "/app/family"] {
                    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
                    stream.write_all(request.as_bytes()).expect("it reads");
                    assert_eq!(Answer::next(&mut stream).status, 200, "{stage}");
                }
                assert_eq!(program.count("flash_upstream_failures_total"), 0, "{stage}");
                program.end();
            });
        }
    });
}
