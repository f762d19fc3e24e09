// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of FastCGI, of one request at a time on a connection (specification 1.0, sections 3 and 8).

use std::ops::Range;

use super::answer::Malformed;

const VERSION: u8 = 1;
const HEADER: usize = 8;
/// All requests have this number: a connection has one at a time.
const REQUEST: u16 = 1;
const RESPONDER: u8 = 1;
const KEEP_CONNECTION: u8 = 1;
/// Content of a record, so that it needs no padding.
const MOST: usize = 0xfff8;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// The begin of a request and its variables.
pub fn begin(variables: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2048);
    header(BEGIN_REQUEST, 8, &mut out);
    out.extend_from_slice(&[0, RESPONDER, KEEP_CONNECTION, 0, 0, 0, 0, 0]);
    let mut pairs = Vec::new();
    for (name, value) in variables {
        length(name.len(), &mut pairs);
        length(value.len(), &mut pairs);
        pairs.extend_from_slice(name.as_bytes());
        pairs.extend_from_slice(value);
    }
    stream(PARAMS, &pairs, &mut out);
    header(PARAMS, 0, &mut out);
    out
}

/// A part of the body.
pub fn body(content: &[u8], out: &mut Vec<u8>) {
    stream(STDIN, content, out);
}

/// The end of the body.
pub fn body_ends(out: &mut Vec<u8>) {
    header(STDIN, 0, out);
}

fn stream(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    for part in content.chunks(MOST) {
        header(kind, part.len(), out);
        out.extend_from_slice(part);
    }
}

fn header(kind: u8, length: usize, out: &mut Vec<u8>) {
    let [id_high, id_low] = REQUEST.to_be_bytes();
    let [high, low] = (length as u16).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, 0, 0]);
}

/// One byte, or four with the highest bit set.
fn length(length: usize, out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Follows the records of an answer.
#[derive(Debug, Default)]
pub struct Records {
    state: State,
    /// Bytes that are not content after the content.
    padding: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Header,
    /// So many bytes of a stream are left.
    Stream(Stream, usize),
    Padding,
    /// The padding of the last record is left.
    LastPadding,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Error,
}

/// What received bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The begin of a record that is not whole.
    More,
    /// Nothing that has a meaning.
    Other,
    Out(Range<usize>),
    Error(Range<usize>),
    /// The program has no room for requests.
    Overloaded,
    Ended,
}

impl Records {
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// # Errors
    ///
    /// They are no records, or not of the one request.
    pub fn next(&mut self, received: &[u8]) -> Result<(usize, Piece), Malformed> {
        match self.state {
            State::Ended => Ok((0, Piece::Ended)),
            State::Header => self.header(received),
            State::Stream(stream, left) => {
                let here = left.min(received.len());
                if here == 0 {
                    return Ok((0, Piece::More));
                }
                self.state = match left - here {
                    0 => State::Padding,
                    left => State::Stream(stream, left),
                };
                let part = 0..here;
                Ok(match stream {
                    Stream::Out => (here, Piece::Out(part)),
                    Stream::Error => (here, Piece::Error(part)),
                })
            }
            State::Padding | State::LastPadding => {
                let here = self.padding.min(received.len());
                self.padding -= here;
                if self.padding > 0 {
                    return Ok((here, Piece::More));
                }
                self.state = match self.state {
                    State::LastPadding => State::Ended,
                    _ => State::Header,
                };
                Ok((here, Piece::Other))
            }
        }
    }

    /// The last so many bytes of the piece before come again.
    pub fn take_back(&mut self, bytes: usize) {
        self.state = match self.state {
            State::Padding => State::Stream(Stream::Out, bytes),
            State::Stream(stream, left) => State::Stream(stream, left + bytes),
            other => other,
        };
        if let State::Stream(_, 0) = self.state {
            self.state = State::Padding;
        }
    }

    fn header(&mut self, received: &[u8]) -> Result<(usize, Piece), Malformed> {
        let Some(header) = received.first_chunk::<HEADER>() else {
            return Ok((0, Piece::More));
        };
        let [version, kind, id_high, id_low, high, low, padding, _] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if version != VERSION || u16::from_be_bytes([id_high, id_low]) != REQUEST {
            return Err(Malformed("a record is not of this request"));
        }
        self.padding = usize::from(padding);
        match kind {
            STDOUT | STDERR if length == 0 => self.state = State::Padding,
            STDOUT => self.state = State::Stream(Stream::Out, length),
            STDERR => self.state = State::Stream(Stream::Error, length),
            END_REQUEST if length == 8 => return self.end(received),
            _ => return Err(Malformed("a record has no place in an answer")),
        }
        Ok((HEADER, Piece::Other))
    }

    fn end(&mut self, received: &[u8]) -> Result<(usize, Piece), Malformed> {
        const OVERLOADED: u8 = 2;
        let Some(record) = received.first_chunk::<{ HEADER + 8 }>() else {
            return Ok((0, Piece::More));
        };
        match record[HEADER + 4] {
            0 => {
                self.state = State::LastPadding;
                Ok((HEADER + 8, Piece::Other))
            }
            OVERLOADED => Ok((HEADER + 8, Piece::Overloaded)),
            _ => Err(Malformed("the program does not answer requests")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record with padding.
    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut out = Vec::new();
        header(kind, content.len(), &mut out);
        out[6] = padding;
        out.extend_from_slice(content);
        out.extend(std::iter::repeat_n(0xee, usize::from(padding)));
        out
    }

    /// Both streams, and whether the request has ended.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), Malformed> {
        let mut records = Records::default();
        let (mut out, mut errors, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            held.extend_from_slice(piece);
            let mut at = 0;
            loop {
                let (used, piece) = records.next(&held[at..])?;
                let here = &held[at..];
                at += used;
                match piece {
                    Piece::More => break,
                    Piece::Other => {}
                    Piece::Out(part) => out.extend_from_slice(&here[part]),
                    Piece::Error(part) => errors.extend_from_slice(&here[part]),
                    Piece::Overloaded | Piece::Ended => break,
                }
            }
            held.drain(..at);
        }
        Ok((out, errors, records.has_ended()))
    }

    #[test]
    fn a_request_is_records() {
        let long = vec![b'v'; 200];
        let variables = [
            ("A".to_string(), b"b".to_vec()),
            ("L".to_string(), long.clone()),
        ];
        let mut found = begin(&variables);
        body(b"hi", &mut found);
        body_ends(&mut found);
        let mut expected = b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x01\x04\0\x01\0\xd2\0\0\x01\x01Ab\x01\x80\0\0\xc8L");
        expected.extend_from_slice(&long);
        expected.extend_from_slice(
            b"\x01\x04\0\x01\0\0\0\0\x01\x05\0\x01\0\x02\0\0hi\x01\x05\0\x01\0\0\0\0",
        );
        assert_eq!(found, expected);
        let mut large = Vec::new();
        body(&vec![0; MOST + 1], &mut large);
        assert_eq!(large.len(), MOST + 1 + 2 * HEADER);
    }

    #[test]
    fn what_is_not_of_the_request_is_refused() {
        let end = |status: u8| record(END_REQUEST, &[0, 0, 0, 0, status, 0, 0, 0], 0);
        let wrong = |change: fn(&mut Vec<u8>)| {
            let mut record = record(STDOUT, b"a", 0);
            change(&mut record);
            record
        };
        for bytes in [
            wrong(|record| record[0] = 2),
            wrong(|record| record[3] = 2),
            wrong(|record| record[1] = STDIN),
            wrong(|record| record[1] = 0),
            record(END_REQUEST, b"short", 0),
            end(1),
            end(3),
        ] {
            assert!(read(&[&bytes]).is_err(), "{bytes:?}");
        }
        let all = [
            record(STDOUT, b"a", 3),
            record(STDERR, b"b", 0),
            record(STDOUT, b"", 1),
            end(0),
        ];
        assert_eq!(
            read(&[&all.concat()]),
            Ok((b"a".to_vec(), b"b".to_vec(), true))
        );
        assert_eq!(
            Records::default().next(&end(2)),
            Ok((16, Piece::Overloaded))
        );
    }

    proptest! {
        /// Whatever the records' sizes, and however they arrive.
        #[test]
        fn streams_come_out_as_they_went_in(
            parts in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300), any::<u8>()), 0..8),
            size in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            for (is_out, content, padding) in &parts {
                let kind = if *is_out { STDOUT } else { STDERR };
                bytes.extend(record(kind, content, *padding));
                if *is_out { &mut out } else { &mut errors }.extend_from_slice(content);
            }
            bytes.extend(record(END_REQUEST, &[0; 8], 5));
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(read(&pieces), Ok((out, errors, true)));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&[&bytes]);
        }
    }
}
