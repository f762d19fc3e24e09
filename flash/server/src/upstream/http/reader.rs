// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the answer of an upstream over HTTP/1. What two programs could read in two ways is no answer.

use super::super::answer::{Head, Malformed, Step};
use super::{is_of_connection, list, Field};
use crate::http::chunked::{Chunked, Piece};

/// Bytes and fields of an answer's head.
pub(super) const MAX_HEAD: usize = 64 << 10;
const MAX_FIELDS: usize = 200;
/// Answers with 1xx before the one that counts.
pub(super) const MAX_INTERIM: usize = 16;

/// Reads the answer to one request.
#[derive(Debug)]
pub struct Reader {
    is_head: bool,
    /// The client wants another protocol.
    has_upgrade: bool,
    state: State,
    interim: usize,
    scanned: usize,
    keeps: bool,
}

#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    Chunked(Chunked),
    /// The answer ends with the connection.
    ToTheEnd,
    /// Bytes of another protocol.
    Tunnel,
    Done,
}

const BAD: fn(&'static str) -> Malformed = Malformed;

impl Reader {
    pub fn new(is_head: bool, has_upgrade: bool) -> Reader {
        Reader {
            is_head,
            has_upgrade,
            state: State::Head,
            interim: 0,
            scanned: 0,
            keeps: false,
        }
    }

    /// The answer was whole, and the connection can have another request.
    pub fn keeps_connection(&self) -> bool {
        self.keeps && matches!(self.state, State::Done)
    }

    /// What the received bytes begin with, and how many of them that is.
    ///
    /// # Errors
    ///
    /// They are no answer.
    pub fn next(&mut self, received: &[u8]) -> Result<(usize, Step), Malformed> {
        if matches!(self.state, State::Done) {
            return Ok((0, Step::End));
        }
        if received.is_empty() {
            return Ok((0, Step::More));
        }
        match &mut self.state {
            State::Head => self.head(received),
            State::Length(left) => {
                let here = (*left).min(received.len() as u64) as usize;
                *left -= here as u64;
                if *left == 0 {
                    self.state = State::Done;
                }
                Ok((here, Step::Content(0..here)))
            }
            State::Chunked(chunked) => match chunked.next(received) {
                Piece::Content(part) => Ok((part.end, Step::Content(part))),
                Piece::Other => Ok((received.len(), Step::More)),
                Piece::Ended(length) => {
                    self.state = State::Done;
                    Ok((length, Step::End))
                }
                Piece::Wrong => Err(BAD("a chunk is not valid")),
            },
            State::ToTheEnd | State::Tunnel => {
                Ok((received.len(), Step::Content(0..received.len())))
            }
            State::Done => Ok((0, Step::End)),
        }
    }

    /// The upstream has closed the connection. Whether the answer is whole.
    pub fn ends(&mut self) -> bool {
        let is_whole = matches!(self.state, State::ToTheEnd | State::Tunnel | State::Done);
        if is_whole {
            self.state = State::Done;
            self.keeps = false;
        }
        is_whole
    }

    /// A valid answer has begun.
    pub fn has_head(&self) -> bool {
        !matches!(self.state, State::Head)
    }

    fn head(&mut self, received: &[u8]) -> Result<(usize, Step), Malformed> {
        const BEGIN: &[u8] = b"HTTP/1.";
        let most = BEGIN.len().min(received.len());
        if received[..most] != BEGIN[..most] {
            return Err(BAD("it is not HTTP/1"));
        }
        let mut end = None;
        while let Some(at) = memchr::memchr(b'\n', &received[self.scanned..]) {
            let at = self.scanned + at;
            if at == 0 || received[at - 1] != b'\r' {
                return Err(BAD("a line ends without a carriage return"));
            }
            self.scanned = at + 1;
            if received[..=at].ends_with(b"\r\n\r\n") {
                end = Some(at + 1);
                break;
            }
        }
        if end.unwrap_or(received.len()) > MAX_HEAD {
            return Err(BAD("the head is too long"));
        }
        let Some(end) = end else {
            self.scanned = received.len();
            return Ok((0, Step::More));
        };
        self.scanned = 0;
        let (head, is_11) = parse(&received[..end])?;
        if head.status < 200 {
            return self.interim(head, end);
        }
        let connection = list(&head.fields, "connection");
        let says = |what: &str| connection.iter().any(|one| one == what);
        self.keeps = !says("close") && (is_11 || says("keep-alive"));
        let (state, length) = self.framing(&head, is_11)?;
        self.state = state;
        let fields = end_to_end_of_answer(head.fields, &connection);
        let head = Head {
            fields,
            length,
            ..head
        };
        Ok((end, Step::Head(head)))
    }

    fn interim(&mut self, head: Head, end: usize) -> Result<(usize, Step), Malformed> {
        self.interim += 1;
        if self.interim > MAX_INTERIM {
            return Err(BAD("there are too many answers before the one that counts"));
        }
        let protocol = list(&head.fields, "upgrade").join(", ");
        let connection = list(&head.fields, "connection");
        let fields = end_to_end_of_answer(head.fields, &connection);
        let mut head = Head { fields, ..head };
        if head.status != 101 {
            return Ok((end, Step::Interim(head)));
        }
        if !self.has_upgrade || protocol.is_empty() {
            return Err(BAD("it changes to a protocol that nobody wants"));
        }
        head.fields
            .push(("Connection".to_string(), b"upgrade".to_vec()));
        head.fields
            .push(("Upgrade".to_string(), protocol.into_bytes()));
        self.state = State::Tunnel;
        Ok((end, Step::Tunnel(head)))
    }

    /// RFC 9112, 6.3. Returns the length that the fields name, too.
    fn framing(&self, head: &Head, is_11: bool) -> Result<(State, Option<u64>), Malformed> {
        let values = |name: &str| {
            let fields = head.fields.iter();
            let its = fields.filter(|(its, _)| its.eq_ignore_ascii_case(name));
            its.map(|(_, value)| value.as_slice()).collect::<Vec<_>>()
        };
        let length = match values("content-length").as_slice() {
            [] => None,
            [one] if !one.is_empty() && one.iter().all(u8::is_ascii_digit) => {
                let number = std::str::from_utf8(one)
                    .ok()
                    .and_then(|one| one.parse().ok());
                Some(number.ok_or(BAD("Content-Length is too large a number"))?)
            }
            _ => return Err(BAD("Content-Length is not one number")),
        };
        let codings = values("transfer-encoding");
        let is_chunked = match codings.as_slice() {
            [] => false,
            [one] if is_11 && length.is_none() && one.eq_ignore_ascii_case(b"chunked") => true,
            _ => return Err(BAD("Transfer-Encoding is not only chunked")),
        };
        Ok(match (head.status, length) {
            (204, _) => (State::Done, None),
            (304, length) => (State::Done, length),
            (_, length) if self.is_head => (State::Done, length),
            _ if is_chunked => (State::Chunked(Chunked::default()), None),
            (_, Some(0)) => (State::Done, Some(0)),
            (_, Some(length)) => (State::Length(length), Some(length)),
            (_, None) => (State::ToTheEnd, None),
        })
    }
}

fn end_to_end_of_answer(fields: Vec<Field>, connection: &[String]) -> Vec<Field> {
    let is_kept = |(name, _): &Field| {
        // It is for the client, from whoever answers.
        let is_via = name.eq_ignore_ascii_case("via");
        is_via || !is_of_connection(name, connection)
    };
    fields.into_iter().filter(is_kept).collect()
}

/// A whole head, and whether the version is 1.1.
fn parse(head: &[u8]) -> Result<(Head, bool), Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut headers);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        _ => return Err(BAD("the head cannot be parsed")),
    }
    let status = parsed.code.unwrap_or(0);
    if !(100..600).contains(&status) {
        return Err(BAD("there is no such status"));
    }
    let fields = parsed.headers.iter().map(|header| {
        let value = header.value.trim_ascii().to_vec();
        (header.name.to_string(), value)
    });
    let head = Head {
        status,
        reason: parsed.reason.unwrap_or_default().to_string(),
        fields: fields.collect(),
        length: None,
    };
    Ok((head, parsed.version == Some(1)))
}
