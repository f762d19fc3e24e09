// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Parsed {
    Reader::default().read(text.as_bytes(), 4096)
}

#[track_caller]
fn request(text: &str) -> Request {
    match read(text) {
        Parsed::Request(request, length) => {
            assert_eq!(length, text.len());
            *request
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn status(text: &str) -> u16 {
    match read(text) {
        Parsed::Refused(refusal) => refusal.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_request() {
    let found = request("GET /a%20b/c HTTP/1.1\r\nHost: Example.org:8080\r\n\r\n");
    assert_eq!(found.method, Method::Get);
    assert_eq!(found.host, "example.org");
    assert!(found.is_11 && found.keeps_alive);
    assert_eq!(found.body, Framing::None);
    assert_eq!(found.line, "GET /a%20b/c HTTP/1.1");
}

#[test]
fn connections_end_as_the_version_and_the_field_say() {
    let keeps = |version: &str, field: &str| {
        request(&format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n")).keeps_alive
    };
    assert!(keeps("1.1", ""));
    assert!(!keeps("1.1", "Connection: foo, Close\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn what_two_servers_may_read_in_two_ways_is_refused() {
    for (fields, expected) in [
        ("", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a:b\r\n", 400),
        ("Host: a:99999\r\n", 400),
        ("Host: user@a\r\n", 400),
        ("Host: [::1\r\n", 400),
        ("Host: [::1]80\r\n", 400),
        ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Host: a\r\nContent-Length: 1, 1\r\n", 400),
        ("Host: a\r\nContent-Length: +1\r\n", 400),
        ("Host: a\r\nContent-Length: \r\n", 400),
        ("Host: a\r\nContent-Length: 99999999999999999999\r\n", 400),
        (
            "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        ("Host: a\r\nTransfer-Encoding: chunked, chunked\r\n", 400),
        (
            "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            400,
        ),
        ("Host: a\r\nTransfer-Encoding: xchunked\r\n", 400),
        ("Host: a\r\nTransfer-Encoding: gzip\r\n", 400),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
        ("Host: a\r\nTransfer-Encoding: chunked;a=b\r\n", 400),
        ("Host: a\r\nExpect: 100-continue\r\nExpect: tea\r\n", 417),
        ("Host: \r\n", 400),
        ("Host: a%zz\r\n", 400),
        ("Host: a\r\nX : y\r\n", 400),
        ("Host: a\r\n X: y\r\n", 400),
        ("Host: a\r\nX: y\r\n  z\r\n", 400),
        ("Host: a\r\nX: y\0z\r\n", 400),
        ("Host: a\r\nX: y\rz\r\n", 400),
        ("Host: a\r\nExpect: tea\r\n", 417),
    ] {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(status(&text), expected, "{fields:?}");
    }
    assert_eq!(status("GET / HTTP/1.1\nHost: a\n\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\n\r\n"), 400);
    assert_eq!(
        status("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        400
    );
    assert_eq!(status("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
    assert!(request("GET / HTTP/1.9\r\nHost: a\r\n\r\n").is_11);
    assert_eq!(status("GET / HTTP/1.10\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status("\x16\x03\x01"), 400);
    assert_eq!(status(" GET"), 400);
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\n"), 505);
    assert_eq!(status("brew / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    let brew = request("BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((brew.method, brew.method_name()), (Method::Unknown, "BREW"));
    assert_eq!(status("GET /\r\n\r\n"), 400);
}

#[test]
fn bodies_end_where_they_say() {
    let body =
        |field: &str| request(&format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n")).body;
    assert_eq!(body("Content-Length: 7"), Framing::Length(7));
    assert_eq!(body("Content-Length: 0"), Framing::None);
    assert_eq!(body("Transfer-Encoding: Chunked"), Framing::Chunked);
    assert_eq!(body("Transfer-Encoding: , chunked,"), Framing::Chunked);
}

#[test]
fn an_absolute_target_has_the_host() {
    let found = request("GET http://B:80/x?y HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(found.host, "b");
    assert_eq!(
        request("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n").host,
        "b"
    );
    assert_eq!(status("GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(
        request("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").host,
        "[::1]"
    );
    assert_eq!(request("GET / HTTP/1.0\r\nHost:\r\n\r\n").host, "");
    let dotted = "GET / HTTP/1.1\r\nHost: B.example.:80\r\n\r\n";
    assert_eq!(request(dotted).host, "b.example");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: .\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.0\r\nHost: .\r\n\r\n"), 400);
}

#[test]
fn heads_have_a_longest_length() {
    let long = "a".repeat(5000);
    assert_eq!(status(&format!("GET /{long}")), 414);
    assert_eq!(status(&long), 501);
    assert_eq!(status(&format!("{long} / HTTP/1.1\r\n")), 501);
    assert_eq!(
        status(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}")),
        431
    );
    let many = "X: y\r\n".repeat(MAX_FIELDS + 1);
    assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
}

#[test]
fn empty_lines_before_a_request_are_passed_over() {
    let text = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(request(text).host, "a");
    assert!(matches!(read("\r\n"), Parsed::Incomplete));
}

proptest! {
    /// However the bytes arrive, the result is the same.
    #[test]
    fn pieces_change_nothing(
        text in "(GET|HEAD|FOO) /[a-z%0-9./]{0,20} HTTP/1\\.[01]\r?\n(Host: [a-z:]{0,5}\r\n){0,2}([A-Za-z-]{1,9}: ?[ -~]{0,20}\r\n){0,4}\r\n",
        sizes in proptest::collection::vec(1usize..40, 1..30),
    ) {
        let whole = Reader::default().read(text.as_bytes(), 4096);
        let mut reader = Reader::default();
        let mut end = 0;
        let mut sizes = sizes.iter().cycle();
        let last = loop {
            end = (end + sizes.next().expect("a cycle")).min(text.len());
            let parsed = reader.read(&text.as_bytes()[..end], 4096);
            if parsed != Parsed::Incomplete || end == text.len() {
                break parsed;
            }
        };
        prop_assert_eq!(last, whole);
    }

    /// Also which limit a head exceeds does not depend on how much of it has been received.
    #[test]
    fn pieces_change_nothing_in_long_heads(
        text in "[A-Z]{0,70} /[a-z]{0,70} HTTP/1\\.1\r\n(Host: a\r\n)?(X: [a-z]{0,70}\r?\n){0,2}\r\n",
        sizes in proptest::collection::vec(1usize..120, 1..30),
    ) {
        let read = |sizes: &[usize]| {
            let mut reader = Reader::default();
            let mut end = 0;
            for size in sizes.iter().cycle() {
                end = (end + size).min(text.len());
                let parsed = reader.read(&text.as_bytes()[..end], 64);
                if parsed != Parsed::Incomplete || end == text.len() {
                    return parsed;
                }
            }
            Parsed::Incomplete
        };
        prop_assert_eq!(read(&sizes), read(&[1]));
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Reader::default().read(&bytes, 512);
    }
}
