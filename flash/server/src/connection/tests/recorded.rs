// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of the access log.

use std::net::TcpListener;

use super::client::{status, Client};
use super::*;
use crate::log::Log;

/// The lines that the log has when the connection has ended.
fn logged(mut client: Client, act: impl FnOnce(&mut Client)) -> Vec<String> {
    let path = client.place.path().join("log");
    let (log, thread) = Log::start(&path, || {}).expect("a log");
    let shared = Arc::get_mut(&mut client.context.shared);
    shared.expect("it is ours").log = Some(Arc::clone(&log));
    act(&mut client);
    if !client.has_ended {
        client.connection.release(0, &mut client.context);
    }
    log.end();
    thread.join().expect("no panic");
    let text = std::fs::read_to_string(&path).expect("text");
    text.lines().map(str::to_string).collect()
}

/// What is behind the time: the request, the status and the bytes.
fn ends(lines: &[String]) -> Vec<&str> {
    let ends = lines
        .iter()
        .map(|line| line.split_once("] ").map(|(_, end)| end));
    ends.map(|end| end.expect("a time").trim_end_matches(" \"-\" \"-\""))
        .collect()
}

#[test]
fn each_request_has_one_line() {
    let lines = logged(Client::of(""), |client| {
        client.ask("GET", "/");
        client.ask("GET", "/a%2Fb");
        // The begin of one that does not come.
        client.send("GET /x HTTP/1.1\r\n");
    });
    let lines = ends(&lines);
    assert_eq!(lines[0], "\"GET / HTTP/1.1\" 200 9");
    assert!(
        lines[1].starts_with("\"GET /a%2Fb HTTP/1.1\" 404 "),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_request_without_an_answer_has_a_line() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let client = Client::with(&format!("proxy = \"http://{address}\""));
    let lines = logged(client, |client| {
        assert_eq!(client.ask("GET", "/slow"), "");
    });
    assert_eq!(ends(&lines), ["\"GET /slow HTTP/1.1\" 499 0"]);
    let lines = logged(Client::of(""), |client| {
        client.send("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    });
    assert_eq!(ends(&lines), ["\"PUT /x HTTP/1.1\" 499 0"]);
}

#[test]
fn an_answer_that_breaks_off_has_a_line() {
    let client = Client::of("");
    let large = client.place.path().join("root/large");
    std::fs::write(large, vec![b'x'; 8 << 20]).expect("room");
    let lines = logged(client, |client| {
        let head = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
        // It does not read more than the sockets hold.
        assert_eq!(status(&client.send(head)), 200);
    });
    let line = ends(&lines).concat();
    let bytes = line.strip_prefix("\"GET /large HTTP/1.1\" 200 ");
    let bytes: u64 = bytes.and_then(|it| it.parse().ok()).expect(&line);
    assert!((1..8 << 20).contains(&bytes), "{line}");
}
