// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients get from an application that does what it should.

use std::io::{Read, Write};

use super::exchange::{asking, good, is_alive, pid, read_all, send};
use super::program::{read, wait_until, Answer};
use super::support::{config, get};

#[test]
fn an_application_sees_its_request_and_answers() {
    let program = good(", params = { OWN = \"mine\" }");
    let answer = program.ask(
        "POST",
        "/app/variables?x=%31",
        "Content-Length: 7\r\nProxy: evil\r\nX-A: b\r\n\r\ncontent",
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    for line in [
        "REQUEST_METHOD=POST",
        "SCRIPT_NAME=/app",
        "PATH_INFO=/variables",
        "QUERY_STRING=x=%31",
        "CONTENT_LENGTH=7",
        "HTTP_X_A=b",
        "SERVER_PROTOCOL=HTTP/1.1",
        "REMOTE_ADDR=127.0.0.1",
        "OWN=mine",
    ] {
        assert!(answer.body.lines().any(|its| its == line), "{answer:?}");
    }
    assert!(!answer.body.contains("evil"));
    for (name, value) in [("Server", "flash"), ("X-Own", "1"), ("Connection", "close")] {
        assert_eq!(answer.field(name), Some(value), "{answer:?}");
    }
    assert!(answer.field("Date").is_some());
    let stream = get(&program, "/app/stream");
    assert_eq!(stream.status, 201);
    assert_eq!(stream.body, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    assert_eq!(stream.field("Connection"), Some("close"));
    assert_eq!(get(&program, "/app/none").status, 404);
    assert_eq!(get(&program, "/app/empty").status, 204);
    assert_eq!(get(&program, "/file").body, "a file\n");
    // The client's connection has its end, whose place it is to see where the answer ends.
    let old = send(&program, b"GET /app/stream HTTP/1.0\r\n\r\n").expect("an answer");
    assert!(old.ends_with("\r\n\r\nonetwo"), "{old}");
    let head = send(
        &program,
        b"HEAD /app/pid HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    let head = head.expect("an answer");
    assert!(
        head.contains("\r\nContent-Length: ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let log = || read(&program.path("access.log"));
    wait_until("the log", || log().lines().count() == 7);
    let made = log()
        .lines()
        .find(|line| line.contains("\"/app/stream\""))
        .map(str::to_string);
    let made = made.expect("a line");
    assert!(made.contains("\"status\":201,\"bytes\":6,"), "{made}");
    assert_eq!(program.count("flash_upstream_requests_total"), 6);
    assert_eq!(program.count("flash_application_connections"), 0);
    assert!(!program.end().contains("the application"));
}

#[test]
fn a_connection_comes_back_and_has_further_requests() {
    let program = good(", processes = 1");
    let mut stream = program.connect();
    let long = "c".repeat(1_000_000);
    // All at once: what is behind a request is not the application's.
    let requests = format!(
        "GET /app/pid HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /app/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
         GET /file HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /app/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}\
         POST /app/ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        long.len()
    );
    let mut sends = stream.try_clone().expect("a descriptor");
    let sending = std::thread::spawn(move || sends.write_all(requests.as_bytes()));
    let pid = Answer::next(&mut stream).body;
    assert!(is_alive(&pid));
    assert_eq!(Answer::next(&mut stream).body, "hello");
    assert_eq!(Answer::next(&mut stream).body, "a file\n");
    assert_eq!(Answer::next(&mut stream).body, long);
    assert_eq!(Answer::next(&mut stream).body, "ignored");
    assert_eq!(Answer::next(&mut stream).body.len(), 1 << 20);
    sending.join().expect("no panic").expect("it reads");
    // A client that waits to be asked for its content.
    let head =
        "POST /app/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).expect("an answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abc").expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "abc");
    // If it is not asked, it is not known whether it sends it.
    let head = head.replace("echo", "ignore");
    stream.write_all(head.as_bytes()).expect("it reads");
    let answer = Answer::next(&mut stream);
    assert_eq!(
        (answer.body.as_str(), answer.field("Connection")),
        ("ignored", Some("close"))
    );
    let chunked = program.ask(
        "POST",
        "/app/echo",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n",
    );
    assert_eq!(chunked.status, 411);
    assert_eq!(super::exchange::pid(&program), pid);
}

#[test]
fn a_program_that_has_the_socket_wait_delays_no_loop() {
    let program = super::support::application("good.py", ", processes = 1", "loops = 1\n");
    let mut stream = program.connect();
    stream
        .write_all(b"GET /app/rude HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "rude");
    // More than the socket takes, to a client that does not read: it would wait for that.
    for _ in 0..20 {
        stream
            .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("it reads");
    }
    for _ in 0..50 {
        assert_eq!(get(&program, "/file").body, "a file\n");
    }
    // With unsent bytes, and told to wait for them at its end.
    drop(stream);
    assert_eq!(get(&program, "/file").body, "a file\n");
}

#[test]
fn answers_go_on_when_the_configuration_changes_and_when_the_server_ends() {
    let program = good(", processes = 1");
    let first = pid(&program);
    let mut streaming = asking(&program, "/app/stream-wait");
    let mut begin = [0; 12];
    streaming.read_exact(&mut begin).expect("a head");
    program.load(&config("good.py", ", processes = 1", ""));
    // The application has not changed, so its process is the same; another one is another.
    std::fs::write(program.path("go"), "").expect("room");
    let rest = read_all(&mut streaming).expect("an answer");
    assert!(
        rest.ends_with("\r\n\r\n6\r\nfirst \r\n4\r\nlast\r\n0\r\n\r\n"),
        "{rest}"
    );
    assert_eq!(pid(&program), first);
    std::fs::remove_file(program.path("go")).expect("it is there");
    let mut streaming = asking(&program, "/app/stream-wait");
    streaming.read_exact(&mut begin).expect("a head");
    program.load(&config("good.py", ", processes = 2", ""));
    let second = pid(&program);
    assert_ne!(second, first);
    assert!(is_alive(&first));
    std::fs::write(program.path("go"), "").expect("room");
    let rest = read_all(&mut streaming).expect("an answer");
    assert!(rest.ends_with("\r\n4\r\nlast\r\n0\r\n\r\n"), "{rest}");
    wait_until("the end of the first process", || !is_alive(&first));
    // What the server has begun it ends, and its processes end with it.
    std::fs::remove_file(program.path("go")).expect("it is there");
    let mut streaming = asking(&program, "/app/stream-wait");
    streaming.read_exact(&mut begin).expect("a head");
    program.signal("-TERM");
    std::thread::sleep(std::time::Duration::from_millis(50));
    std::fs::write(program.path("go"), "").expect("room");
    assert!(read_all(&mut streaming)
        .expect("an answer")
        .ends_with("last\r\n0\r\n\r\n"));
    program.end_after_signal();
    wait_until("the end of the processes", || !is_alive(&second));
}
