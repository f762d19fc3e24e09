// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::super::answer::{Malformed, Step};
use super::reader::{MAX_HEAD, MAX_INTERIM};
use super::*;
use crate::http::fields::fields;
use crate::http::request::{Parsed, Reader as RequestReader};

fn request(text: &str) -> (Box<Request>, Vec<Field>) {
    match RequestReader::default().read(text.as_bytes(), 4096) {
        Parsed::Request(request, length) => (request, fields(&text.as_bytes()[..length])),
        other => panic!("{other:?}"),
    }
}

const CLIENT: Client = Client {
    address: Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
    is_secure: true,
};

fn written(text: &str, options: &Options) -> String {
    let (request, fields) = request(text);
    let upgrade = upgrade(&request, &fields);
    let head = head(&request, &fields, "/x", CLIENT, options, upgrade.as_deref());
    String::from_utf8(head).expect("text")
}

#[test]
fn fields_of_the_connection_stay_here() {
    let text = "POST /x HTTP/1.1\r\nHost: a:81\r\nConnection: close, X-Own\r\nX-Own: 1\r\nTE: trailers\r\n\
                Keep-Alive: 5\r\nX_Forwarded_For: me\r\nX-Real-IP: me\r\nExpect: 100-continue\r\n\
                Upgrade: websocket\r\nAccept: */*\r\nVia: 1.0 old\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        written(text, &Options::default()),
        "POST /x HTTP/1.1\r\nHost: a:81\r\nAccept: */*\r\nX-Forwarded-For: 192.0.2.1\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: a:81\r\nVia: 1.0 old, 1.1 flash\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn what_the_client_says_of_itself_counts_only_if_it_is_trusted() {
    let text = "GET http://b/x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\n\
                X-Forwarded-Proto: http\r\n\r\n";
    let trusting = Options {
        trusts_client: true,
        ..Options::default()
    };
    let found = written(text, &trusting);
    assert!(
        found.contains("\r\nX-Forwarded-For: 10.0.0.1, 192.0.2.1\r\n"),
        "{found}"
    );
    assert!(found.contains("\r\nX-Forwarded-Proto: http\r\n"), "{found}");
    assert!(
        !found.contains("Proto: https") && found.contains("\r\nHost: b\r\n"),
        "{found}"
    );
    let standard = Options {
        forwarded: Forwarded::Standard,
        host: Host::Name("app".to_string()),
        ..Options::default()
    };
    let found = written(text, &standard);
    let forwarded = "\r\nForwarded: for=192.0.2.1;proto=https;host=\"b\"\r\n";
    assert!(
        found.contains(forwarded) && found.contains("\r\nHost: app\r\n"),
        "{found}"
    );
    assert!(!found.contains("X-Forwarded"), "{found}");
}

#[test]
fn another_protocol_is_asked_for_as_the_client_does() {
    let text = |protocol: &str| {
        format!("GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
    };
    let found = written(&text("WebSocket"), &Options::default());
    assert!(
        found.ends_with("Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        "{found}"
    );
    assert!(!written(&text("h2c"), &Options::default()).contains("Upgrade"));
    assert!(!written(&text("a, b"), &Options::default()).contains("Upgrade"));
}

/// The steps of an answer; the content of neighbours is one.
fn steps(reader: &mut Reader, pieces: &[&[u8]]) -> Result<Vec<(u16, Vec<u8>)>, Malformed> {
    let mut found: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut held = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let (used, step) = reader.next(&held[at..])?;
            let here = &held[at..];
            match step {
                Step::More => {
                    at += used;
                    break;
                }
                Step::Interim(head) | Step::Tunnel(head) | Step::Head(head) => {
                    found.push((head.status, Vec::new()));
                }
                Step::Content(part) => match found.last_mut() {
                    Some((_, content)) => content.extend_from_slice(&here[part]),
                    None => panic!("content before a head"),
                },
                Step::End => return Ok(found),
                Step::Message(_) | Step::Overloaded => panic!("not in HTTP"),
            }
            at += used;
        }
        held.drain(..at);
    }
    Ok(found)
}

/// The answers, whether the connection can be used again, and whether the answer is whole if it ends.
type Found = (Vec<(u16, Vec<u8>)>, bool, bool);

fn answer(text: &str) -> Result<Found, Malformed> {
    let mut reader = Reader::new(false, false);
    let found = steps(&mut reader, &[text.as_bytes()])?;
    let keeps = reader.keeps_connection();
    Ok((found, keeps, reader.ends()))
}

#[test]
fn answers_end_where_their_fields_say() {
    for (text, content, keeps, is_whole) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "ab",
            true,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "ab",
            false,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "",
            false,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            "ab",
            true,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "ab",
            false,
            false,
        ),
        ("HTTP/1.1 200\r\n\r\nab", "ab", false, true),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "ab",
            false,
            true,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
            "ab",
            true,
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true, true),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
            "",
            true,
            true,
        ),
    ] {
        let found = answer(text).expect(text);
        let status = text[9..12].parse().expect("a status");
        assert_eq!(
            found,
            (vec![(status, content.into())], keeps, is_whole),
            "{text}"
        );
    }
    let mut head = Reader::new(true, false);
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(steps(&mut head, &[text]), Ok(vec![(200, Vec::new())]));
    assert!(head.keeps_connection());
    let text =
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (found, ..) = answer(text).expect("two");
    assert_eq!(found, [(103, Vec::new()), (200, Vec::new())]);
}

#[test]
fn what_can_be_read_in_two_ways_is_no_answer() {
    for wrong in [
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "garbage\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        assert!(answer(wrong).is_err(), "{wrong:?}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(MAX_HEAD));
    assert!(answer(&long).is_err());
    assert!(answer(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(MAX_INTERIM + 1)).is_err());
}

proptest! {
    /// However the bytes arrive, the result is the same.
    #[test]
    fn pieces_change_nothing(
        text in "(HTTP/1\\.1 103 X\r\n\r\n)?HTTP/1\\.[01] [1-5]0[014] ?[A-Z]{0,3}\r?\n\
                 (Content-Length: [0-9]{1,2}\r\n|Transfer-Encoding: chunked\r\n|Connection: [a-z-]{1,10}\r\n){0,2}\r\n\
                 ([0-3]\r\n[a-z]{0,3}\r\n){0,4}(0\r\n\r\n)?",
        sizes in proptest::collection::vec(1usize..20, 1..20),
    ) {
        let mut whole = Reader::new(false, false);
        let expected = steps(&mut whole, &[text.as_bytes()]);
        let mut pieces = Vec::new();
        let mut rest = text.as_bytes();
        for size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let mut reader = Reader::new(false, false);
        let found = steps(&mut reader, &pieces);
        if expected.is_ok() {
            prop_assert_eq!(found, expected);
            prop_assert_eq!(reader.keeps_connection(), whole.keeps_connection());
        } else {
            prop_assert!(found.is_err());
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut reader = Reader::new(false, true);
        let _ = steps(&mut reader, &[&bytes]);
    }
}
