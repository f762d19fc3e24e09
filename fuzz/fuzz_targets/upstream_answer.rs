// SPDX-License-Identifier: MIT OR Apache-2.0
//! What upstreams send to flash: answers of HTTP, FastCGI and scripts. The first byte says which, the second one how long
//! the pieces are in which it comes; what is read must not depend on them.
#![no_main]

use flash::upstream::answer::{Malformed, Step};
use flash::upstream::{fastcgi, http, scripts, Reader};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Default, PartialEq)]
struct Read {
    statuses: Vec<u16>,
    content: Vec<u8>,
    messages: Vec<u8>,
    is_wrong: bool,
    has_ended: bool,
}

fn read(mut reader: Reader, bytes: &[u8], length: usize) -> Read {
    let mut read = Read::default();
    let mut held = Vec::new();
    for piece in bytes.chunks(length) {
        held.extend_from_slice(piece);
        loop {
            let (used, step) = match reader.next(&held) {
                Ok(found) => found,
                Err(Malformed(_)) => {
                    read.is_wrong = true;
                    return read;
                }
            };
            assert!(used <= held.len());
            match step {
                Step::More => {
                    held.drain(..used);
                    break;
                }
                Step::Interim(head) | Step::Head(head) => read.statuses.push(head.status),
                Step::Content(part) => read.content.extend_from_slice(&held[part]),
                Step::Message(part) => read.messages.extend_from_slice(&held[part]),
                Step::Tunnel(_) | Step::Overloaded | Step::End => {
                    read.has_ended = true;
                    return read;
                }
            }
            held.drain(..used);
        }
    }
    read
}

fuzz_target!(|data: &[u8]| {
    let [kind, length, bytes @ ..] = data else {
        return;
    };
    let reader = || match kind % 5 {
        0 => Reader::Http(http::Reader::new(false, false)),
        1 => Reader::Http(http::Reader::new(true, false)),
        2 => Reader::Http(http::Reader::new(false, true)),
        3 => Reader::FastCgi(Box::new(fastcgi::Reader::new())),
        _ => Reader::Cgi(scripts::Reader::default()),
    };
    let at_once = read(reader(), bytes, bytes.len().max(1));
    let in_pieces = read(reader(), bytes, usize::from(*length).max(1));
    // Pieces may show what is right before they come to what is wrong.
    if !at_once.is_wrong && !in_pieces.is_wrong {
        assert_eq!(at_once, in_pieces);
    }
    assert_eq!(at_once.is_wrong, in_pieces.is_wrong);
});
