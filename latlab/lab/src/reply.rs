//! Reads one HTTP/1.x reply, regardless of how it is split into pieces.

use std::ops::Range;

/// Longer heads are refused.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// Maximum length of a chunk-size line or a trailer line.
const MAX_LINE: usize = 8 << 10;

/// The bytes are no valid reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The position in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// This many bytes are left.
    Length(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Done,
}

/// A reply that is being read.
#[derive(Debug)]
pub struct Reply {
    state: State,
    /// The part of the head, or of a line, from earlier pieces.
    partial: Vec<u8>,
    pub status: u16,
    /// The value of `Content-Length`.
    pub length: Option<u64>,
    /// Bytes of the body received so far.
    pub received: u64,
    /// Whether the server closes the connection after the reply.
    pub closes: bool,
    /// The value of `Set-Cookie: last_ad=`.
    pub last_ad: Option<u16>,
    /// Target of a redirect.
    pub location: Option<String>,
    /// Whether there is no body whatever the head says, because the request was HEAD.
    bodiless: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Reply {
            state: State::Head,
            partial: Vec::new(),
            status: 0,
            length: None,
            received: 0,
            closes: false,
            last_ad: None,
            location: None,
            bodiless: false,
        }
    }
}

impl Reply {
    /// Starts again, for the next reply of a connection.
    pub fn reset(&mut self, bodiless: bool) {
        let mut partial = std::mem::take(&mut self.partial);
        partial.clear();
        *self = Reply {
            partial,
            bodiless,
            ..Reply::default()
        };
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the connection is the end of the reply.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Number of the next body bytes that contain no framing, so that they can be skipped without
    /// parsing.
    pub fn plain_bytes(&self) -> u64 {
        match self.state {
            State::Length(left) => left,
            _ => 0,
        }
    }

    /// Skips some of the [`Reply::plain_bytes`], which were discarded without reading.
    pub fn skip(&mut self, length: u64) {
        if let State::Length(left) = self.state {
            self.received += length.min(left);
            self.state = State::Length(left.saturating_sub(length));
            if left <= length {
                self.state = State::Done;
            }
        }
    }

    /// Parses received bytes. Returns how many of them belong to this reply. `body` gets each piece of
    /// the body, as its offset in the body and a range of `bytes`.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut body: impl FnMut(u64, Range<usize>),
    ) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let rest = &bytes[at..];
            at += match self.state {
                State::Head => self.head(rest)?,
                State::Length(left) | State::Chunk(left) => {
                    let length = left.min(rest.len() as u64);
                    body(self.received, at..at + length as usize);
                    self.received += length;
                    let left = left - length;
                    self.state = match self.state {
                        State::Length(_) if left == 0 => State::Done,
                        State::Length(_) => State::Length(left),
                        _ if left == 0 => State::ChunkEnd,
                        _ => State::Chunk(left),
                    };
                    length as usize
                }
                State::UntilClose => {
                    body(self.received, at..bytes.len());
                    self.received += rest.len() as u64;
                    rest.len()
                }
                State::ChunkSize | State::ChunkEnd | State::Trailer => self.line(rest)?,
                State::Done => 0,
            };
        }
        Ok(at)
    }

    fn head(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let before = self.partial.len();
        if before == 0 {
            if let Some(length) = self.parse_head(rest)? {
                return Ok(length);
            }
        }
        self.partial.extend_from_slice(rest);
        if before > 0 {
            let whole = std::mem::take(&mut self.partial);
            let parsed = self.parse_head(&whole)?;
            self.partial = whole;
            if let Some(length) = parsed {
                self.partial.clear();
                return Ok(length.saturating_sub(before));
            }
        }
        match self.partial.len() > MAX_HEAD {
            true => Err(Malformed),
            false => Ok(rest.len()),
        }
    }

    /// The length of the head, if it is complete.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Malformed),
        };
        let status = parsed.code.ok_or(Malformed)?;
        if (100..200).contains(&status) {
            // An interim (1xx) reply; the final one follows.
            return Ok(Some(length));
        }
        self.status = status;
        self.closes = parsed.version == Some(0);
        let mut chunked = false;
        for header in parsed.headers.iter() {
            let value = String::from_utf8_lossy(header.value);
            let value = value.trim();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let length = value.parse().map_err(|_| Malformed)?;
                    if self.length.is_some_and(|known| known != length) {
                        return Err(Malformed);
                    }
                    self.length = Some(length);
                }
                "transfer-encoding" => chunked = value.to_ascii_lowercase().ends_with("chunked"),
                "connection" => {
                    let value = value.to_ascii_lowercase();
                    self.closes |= value.contains("close");
                    self.closes &= !value.contains("keep-alive");
                }
                "set-cookie" => {
                    let ad = value.strip_prefix("last_ad=");
                    let ad = ad.and_then(|rest| rest.split(';').next()?.parse().ok());
                    self.last_ad = self.last_ad.or(ad);
                }
                "location" if (300..400).contains(&status) => {
                    self.location = Some(value.to_string());
                }
                _ => {}
            }
        }
        let bodiless = self.bodiless || matches!(status, 204 | 304);
        if bodiless {
            // It is the length of another reply's body.
            self.length = None;
        }
        self.state = match self.length {
            _ if bodiless => State::Done,
            _ if chunked => State::ChunkSize,
            Some(0) => State::Done,
            Some(length) => State::Length(length),
            None => State::UntilClose,
        };
        self.closes |= self.state == State::UntilClose;
        Ok(Some(length))
    }

    /// A line between or after the chunks.
    fn line(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        self.partial.extend_from_slice(&rest[..taken]);
        if self.partial.len() > MAX_LINE {
            return Err(Malformed);
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.partial);
            let empty = line == b"\r\n" || line == b"\n";
            self.state = match self.state {
                State::ChunkEnd if empty => State::ChunkSize,
                State::Trailer if empty => State::Done,
                State::Trailer => State::Trailer,
                State::ChunkSize => match httparse::parse_chunk_size(&line) {
                    Ok(httparse::Status::Complete((_, 0))) => State::Trailer,
                    Ok(httparse::Status::Complete((_, size))) => State::Chunk(size),
                    _ => return Err(Malformed),
                },
                _ => return Err(Malformed),
            };
            self.partial = line;
            self.partial.clear();
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads in pieces that end at these positions. Returns the reply, its body, and the number of
    /// bytes that belong to it.
    fn read(bytes: &[u8], cuts: &[usize]) -> Result<(Reply, Vec<u8>, usize), Malformed> {
        let mut reply = Reply::default();
        let mut body = Vec::new();
        let mut at = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        for end in ends {
            while at < end && !reply.is_done() {
                let piece = &bytes[at..end];
                at += reply.feed(piece, |offset, range| {
                    assert_eq!(offset, body.len() as u64);
                    body.extend_from_slice(&piece[range]);
                })?;
            }
        }
        Ok((reply, body, bytes.len() - at))
    }

    #[test]
    fn replies_of_all_kinds_end_where_they_should() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1";
        let (reply, body, left) = read(plain, &[]).unwrap();
        assert!(reply.is_done() && !reply.closes);
        assert_eq!((reply.status, &body[..], left), (200, &b"hello"[..], 8));

        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: 1\r\n\r\nrest";
        let (reply, body, left) = read(chunked, &[]).unwrap();
        assert!(reply.is_done());
        assert_eq!((&body[..], left), (&b"hello world"[..], 4));

        let continued = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 No\r\n\r\nall";
        let (reply, body, _) = read(continued, &[]).unwrap();
        assert!(reply.ends_with_connection() && reply.closes);
        assert_eq!((reply.status, &body[..]), (404, &b"all"[..]));

        let nothing =
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nConnection: close\r\n\r\n";
        let (reply, _, left) = read(nothing, &[]).unwrap();
        assert!(reply.is_done() && reply.closes && left == 0);
        assert_eq!(reply.length, None);
    }

    #[test]
    fn a_reply_to_head_ends_with_its_head() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ] {
            let mut reply = Reply::default();
            reply.reset(true);
            let used = reply.feed(head.as_bytes(), |_, _| panic!("a body"));
            assert_eq!(used, Ok(head.len()));
            assert!(
                reply.is_done() && !reply.closes && reply.length.is_none(),
                "{head}"
            );
        }
    }

    #[test]
    fn redirects_say_where_they_lead() {
        let moved = b"HTTP/1.1 301 Moved\r\nLocation: https://a/\r\nContent-Length: 0\r\n\r\n";
        let (reply, ..) = read(moved, &[]).unwrap();
        assert_eq!(reply.location.as_deref(), Some("https://a/"));
        let made = b"HTTP/1.1 201 Made\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read(made, &[]).unwrap().0.location, None);
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert!(read(b"SSH-2.0-OpenSSH\r\n", &[]).is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", &[]).is_err());
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        assert!(read(two, &[]).is_err());
        let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert!(read(chunk, &[]).is_err());
        let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
        endless.extend(b"A: b\r\n".repeat(20_000));
        assert!(read(&endless, &[100, 90_000]).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            body: Vec<u8>, chunks in prop::option::of(1usize..50), cuts: Vec<usize>
        ) {
            let mut bytes = b"HTTP/1.1 200 OK\r\nSet-Cookie: last_ad=77; Path=/\r\n".to_vec();
            match chunks {
                None => {
                    bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                    bytes.extend(&body);
                }
                Some(size) => {
                    bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                    for chunk in body.chunks(size) {
                        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                        bytes.extend(chunk.iter().chain(b"\r\n"));
                    }
                    bytes.extend(b"0\r\n\r\n");
                }
            }
            bytes.extend(b"more");
            let (reply, read_body, left) = read(&bytes, &cuts).unwrap();
            prop_assert!(reply.is_done());
            prop_assert_eq!(reply.received, body.len() as u64);
            prop_assert_eq!(reply.last_ad, Some(77));
            prop_assert_eq!(read_body, body);
            prop_assert_eq!(left, 4);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, cuts: Vec<usize>) {
            let mut whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            whole.extend(&bytes);
            let _ = read(&whole, &cuts);
            let _ = read(&bytes, &cuts);
        }
    }
}
