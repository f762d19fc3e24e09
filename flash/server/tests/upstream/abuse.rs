// SPDX-License-Identifier: MIT OR Apache-2.0
//! Upstreams and clients that misbehave, many times: nothing is left of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::support::{wait_for, Call, Fake, Flash};

/// Requests of the whole test.
const REQUESTS: usize = 10_000;
const CLIENTS: usize = 8;

/// Misbehaves as the path says.
fn misbehave(call: &mut Call) {
    while let Some(head) = call.head() {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let go_on = match path {
            "/fine" => call.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            "/chunked" => call
                .say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
            "/garbage" => call.say("\u{1}\u{2}\u{3}\r\n\r\n"),
            "/half" => {
                call.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
                false
            }
            "/endless" => {
                call.say("HTTP/1.1 200 OK\r\n\r\n");
                let much = "x".repeat(64 << 10);
                while call.say(&much) {}
                false
            }
            // It waits for more than the client sends, or for nothing.
            "/hangs" | "/body" => {
                call.wait_for_end();
                false
            }
            _ => false,
        };
        if !go_on {
            break;
        }
    }
    call.end();
}

fn misuse(flash: &Flash, number: usize) {
    let paths = [
        "/fine", "/garbage", "/half", "/close", "/endless", "/hangs", "/body", "/chunked",
    ];
    let path = paths[number % paths.len()];
    let mut client = flash.connect();
    let (method, field) = match path {
        "/body" => ("POST", "Content-Length: 100000\r\n"),
        _ => ("GET", ""),
    };
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{field}\r\npart");
    let head = if path == "/body" {
        &head
    } else {
        &head[..head.len() - 4]
    };
    client.write_all(head.as_bytes()).expect("it reads");
    match path {
        // The client goes away in the middle: of its own body, or of the answer.
        "/body" => {}
        "/hangs" => vanish(client),
        "/endless" => {
            let _ = client.read(&mut [0; 1000]);
        }
        _ => {
            let mut all = Vec::new();
            let _ = client.read_to_end(&mut all);
            let expected: &[&[u8]] = match path {
                "/fine" | "/chunked" => &[b"HTTP/1.1 200 "],
                // If nothing of it was sent, there is still another answer.
                "/half" => &[b"HTTP/1.1 200 ", b"HTTP/1.1 502 "],
                _ => &[b"HTTP/1.1 502 "],
            };
            let is_one = expected.iter().any(|begin| all.starts_with(begin));
            assert!(is_one, "{path}: {}", String::from_utf8_lossy(&all));
        }
    }
}

/// Ends the connection as a client that is killed does, with unread bytes.
fn vanish(client: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO));
}

#[test]
fn nothing_is_left_of_ten_thousand_bad_requests() {
    let fake = Fake::start(misbehave);
    let flash = Arc::new(Flash::with(&format!(
        "proxy = \"{}\"\nupstream = {{ idle = \"100ms\", failures = 1000, read = \"2s\" }}",
        fake.url()
    )));
    let many = |from: usize, to: usize| {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let flash = &flash;
                scope.spawn(move || {
                    for number in (from..to).filter(|number| number % CLIENTS == client) {
                        // Each client has all of them in turn.
                        misuse(flash, number / CLIENTS);
                    }
                });
            }
        });
        wait_for("the end of all connections", || {
            flash.metric("flash_upstream_connections") == 0
        });
    };
    many(0, REQUESTS / 5);
    let (files, memory) = flash.usage();
    many(REQUESTS / 5, REQUESTS);
    let (files_after, memory_after) = flash.usage();
    assert!(
        files_after <= files + 2,
        "{files} descriptors, then {files_after}"
    );
    let grown = memory_after.saturating_sub(memory);
    assert!(grown < 8 << 20, "{memory} bytes, then {memory_after}");
    assert!(flash.get("/fine").ends_with("ok"));
    assert!(flash.metric("flash_upstream_requests_total") >= REQUESTS as u64);
}

/// The client reads as slowly as it wants: the server does not collect the answer.
#[test]
fn an_endless_answer_fills_no_memory() {
    let fake = Fake::start(misbehave);
    let flash = Flash::with(&format!(
        "proxy = \"{}\"\nupstream = {{ buffer = \"64K\" }}",
        fake.url()
    ));
    let (_, before) = flash.usage();
    let mut client = flash.connect();
    client
        .write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let mut read = 0;
    let mut buffer = vec![0; 256 << 10];
    while read < 256 << 20 {
        read += client.read(&mut buffer).expect("it is endless");
    }
    let (_, after) = flash.usage();
    assert!(after < before + (8 << 20), "{before} bytes, then {after}");
    vanish(client);
    wait_for("the end of the upstream's connection", || {
        flash.metric("flash_upstream_connections") == 0
    });
}
