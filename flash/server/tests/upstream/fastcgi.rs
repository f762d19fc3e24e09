// SPDX-License-Identifier: MIT OR Apache-2.0
//! FastCGI with programs that do what they should not.

use std::io::{Read, Write};

use crate::support::{wait_for, Call, Fake, Flash};

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let mut record = vec![1, kind, 0, 1, high, low, 0, 0];
    record.extend_from_slice(content);
    record
}

fn end(status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, status, 0, 0, 0])
}

fn out(content: &str) -> Vec<u8> {
    record(6, content.as_bytes())
}

/// The next request with its body.
fn request(call: &mut Call) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while !all.ends_with(&record(5, b"")) {
        let byte = call.read(1);
        if byte.is_empty() {
            return None;
        }
        all.extend(byte);
    }
    Some(all)
}

fn program(answer: Vec<u8>, keeps: bool) -> (Fake, Flash) {
    let fake = Fake::start(move |call| {
        while request(call).is_some() {
            if call.stream.write_all(&answer).is_err() || !keeps {
                break;
            }
        }
        call.end();
    });
    let flash = Flash::with(&format!(
        "fastcgi = {{ to = \"{}\", application = true }}",
        fake.address
    ));
    (fake, flash)
}

#[test]
fn answers_that_are_none() {
    let whole = "Content-Type: a/b\r\n\r\nok";
    for (answer, status) in [
        ([out(whole), end(0)].concat(), 200),
        ([end(2)].concat(), 503),
        ([end(1)].concat(), 502),
        ([end(0)].concat(), 502),
        ([out("no head\n\n"), end(0)].concat(), 502),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), 502),
        (record(5, b"x"), 502),
        (Vec::new(), 502),
    ] {
        let (_fake, flash) = program(answer.clone(), false);
        let found = flash.get("/");
        assert!(
            found.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer:?}: {found}"
        );
    }
}

#[test]
fn hidden_scripts_are_not_run() {
    let answer = [out("A: b\n\nok"), end(0)].concat();
    let fake =
        Fake::start(
            move |call| {
                while request(call).is_some() && call.stream.write_all(&answer).is_ok() {}
            },
        );
    let flash = Flash::with(&format!("fastcgi = {{ to = \"{}\" }}", fake.address));
    assert!(flash.get("/a.php").starts_with("HTTP/1.1 200 "));
    for target in ["/.a.php", "/.private/a.php", "/.private/"] {
        let answer = flash.get(target);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{target}: {answer}");
    }
    assert_eq!(fake.connections(), 1);
}

#[test]
fn connections_are_used_again_and_messages_go_to_the_log() {
    let answer = [
        record(7, b"a warning\n"),
        out("A: b\n\n"),
        out("ok"),
        end(0),
    ]
    .concat();
    let (fake, flash) = program(answer, true);
    for _ in 0..3 {
        assert!(flash.get("/").ends_with("\r\n2\r\nok\r\n0\r\n\r\n"));
    }
    assert_eq!(fake.connections(), 1);
    wait_for("the messages", || {
        flash.errors().matches("upstream: a warning").count() == 3
    });
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let (goes, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let fake = Fake::start(move |call| {
        request(call);
        let _ = call.stream.write_all(&out("A: b\n\nhalf"));
        let _ = wait.lock().expect("no panic").recv();
        call.end();
    });
    let flash = Flash::with(&format!(
        "fastcgi = {{ to = \"{}\", application = true }}",
        fake.address
    ));
    let mut client = flash.connect();
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(get).expect("it reads");
    let mut answer = vec![0; 12];
    client.read_exact(&mut answer).expect("a begin");
    goes.send(()).expect("it waits");
    let _ = client.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && !answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
}
