//! The part of FastCGI that a responder needs (specification of 1996, version 1).
//!
//! Implemented here because it is little, and because existing crates either need an asynchronous
//! runtime or have not been maintained for years.

use std::io::{self, Read, Write};

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;

const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;
const CANNOT_MULTIPLEX: u8 = 1;
const UNKNOWN_ROLE: u8 = 3;

/// Maximum size of a request's parameters, and of its body.
const MAX_BYTES: usize = 1 << 20;

/// A complete request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Request {
    id: u16,
    keep: bool,
    pub params: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the connection stays open for another request after this one.
    pub fn keeps_connection(&self) -> bool {
        self.keep
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("FastCGI: {what}"))
}

/// Reads the next request of a connection; `None` if the server has closed it. Requests that are
/// multiplexed on the same connection are refused, as the specification allows.
pub fn read_request(stream: &mut (impl Read + Write)) -> io::Result<Option<Request>> {
    let mut request: Option<Request> = None;
    let mut params = Vec::new();
    loop {
        let mut header = [0; 8];
        match stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && request.is_none() => {
                return Ok(None)
            }
            Err(error) => return Err(error),
        }
        let [version, kind, id_high, id_low, high, low, padding, _] = header;
        if version != VERSION {
            return Err(damaged("another version"));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut content = vec![0; length + usize::from(padding)];
        stream.read_exact(&mut content)?;
        content.truncate(length);
        match (kind, &mut request) {
            (GET_VALUES, _) => write_record(stream, GET_VALUES_RESULT, 0, &[])?,
            (BEGIN_REQUEST, begun) => {
                if content.len() < 8 {
                    return Err(damaged("a request that does not say what it is"));
                }
                let role = u16::from_be_bytes([content[0], content[1]]);
                if begun.is_some() {
                    end(stream, id, CANNOT_MULTIPLEX)?;
                } else if role != RESPONDER {
                    end(stream, id, UNKNOWN_ROLE)?;
                } else {
                    *begun = Some(Request {
                        id,
                        keep: content[2] & KEEP_CONNECTION != 0,
                        ..Request::default()
                    });
                }
            }
            (ABORT_REQUEST, begun) if begun.as_ref().is_some_and(|begun| begun.id == id) => {
                end(stream, id, 0)?;
                *begun = None;
                params.clear();
            }
            (PARAMS, Some(begun)) if begun.id == id => {
                if content.is_empty() {
                    begun.params = pairs(&params)?;
                } else {
                    limited_append(&mut params, &content)?;
                }
            }
            (STDIN, Some(begun)) if begun.id == id => {
                if content.is_empty() {
                    return Ok(request);
                }
                limited_append(&mut begun.body, &content)?;
            }
            // Records of a request that was refused, or is complete.
            (BEGIN_REQUEST..=8, _) => {}
            (kind, _) => write_record(stream, UNKNOWN_TYPE, 0, &[kind, 0, 0, 0, 0, 0, 0, 0])?,
        }
    }
}

fn limited_append(bytes: &mut Vec<u8>, more: &[u8]) -> io::Result<()> {
    if bytes.len() + more.len() > MAX_BYTES {
        return Err(damaged("a request of more than a megabyte"));
    }
    bytes.extend_from_slice(more);
    Ok(())
}

/// Name-value pairs; each length takes one byte or four.
fn pairs(bytes: &[u8]) -> io::Result<Vec<(String, String)>> {
    let mut rest = bytes;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let name = length(&mut rest)?;
        let value = length(&mut rest)?;
        let mut take = |length: usize| {
            if length > rest.len() {
                return Err(damaged("a parameter that is cut off"));
            }
            let (now, later) = rest.split_at(length);
            rest = later;
            Ok(String::from_utf8_lossy(now).into_owned())
        };
        pairs.push((take(name)?, take(value)?));
    }
    Ok(pairs)
}

fn length(rest: &mut &[u8]) -> io::Result<usize> {
    let cut_off = || damaged("a parameter that is cut off");
    let first = *rest.first().ok_or_else(cut_off)?;
    if first & 0x80 == 0 {
        *rest = &rest[1..];
        return Ok(usize::from(first));
    }
    let bytes: [u8; 4] = rest
        .get(..4)
        .and_then(|four| four.try_into().ok())
        .ok_or_else(cut_off)?;
    *rest = &rest[4..];
    Ok((u32::from_be_bytes(bytes) & 0x7fff_ffff) as usize)
}

fn write_record(stream: &mut impl Write, kind: u8, id: u16, content: &[u8]) -> io::Result<()> {
    let [id_high, id_low] = id.to_be_bytes();
    let [high, low] = (content.len() as u16).to_be_bytes();
    stream.write_all(&[VERSION, kind, id_high, id_low, high, low, 0, 0])?;
    stream.write_all(content)
}

fn end(stream: &mut impl Write, id: u16, status: u8) -> io::Result<()> {
    write_record(stream, END_REQUEST, id, &[0, 0, 0, 0, status, 0, 0, 0])?;
    stream.flush()
}

/// Sends the whole answer: head and body as a CGI program would print them.
pub fn write_answer(stream: &mut impl Write, request: &Request, answer: &[u8]) -> io::Result<()> {
    // Most answers take one write; otherwise each small record would be a packet.
    let mut out = Vec::with_capacity(answer.len() + answer.len() / 4096 + 64);
    for part in answer.chunks(usize::from(u16::MAX) & !7) {
        write_record(&mut out, STDOUT, request.id, part)?;
    }
    write_record(&mut out, STDOUT, request.id, &[])?;
    end(&mut out, request.id, 0)?;
    stream.write_all(&out)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads from the slice, writes to the vector.
    struct Ends<'a>(&'a [u8], Vec<u8>);

    impl Read for Ends<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Ends<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_record(&mut bytes, kind, id, content).unwrap();
        bytes[6] = padding;
        bytes.extend(vec![0xaa; usize::from(padding)]);
        bytes
    }

    fn request_bytes(params: &[(&str, &str)], body: &[u8], keep: u8) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (name, value) in params {
            encoded.push(name.len() as u8);
            encoded.extend((value.len() as u32 | 0x8000_0000).to_be_bytes());
            encoded.extend(name.bytes().chain(value.bytes()));
        }
        let mut bytes = record(BEGIN_REQUEST, 1, &[0, 1, keep, 0, 0, 0, 0, 0], 0);
        // Split at the worst place: within a length.
        let (first, second) = encoded.split_at(encoded.len().min(3));
        bytes.extend(record(PARAMS, 1, first, 5));
        bytes.extend(record(PARAMS, 1, second, 0));
        bytes.extend(record(PARAMS, 1, &[], 0));
        bytes.extend(record(STDIN, 1, body, 1));
        if !body.is_empty() {
            bytes.extend(record(STDIN, 1, &[], 0));
        }
        bytes
    }

    #[test]
    fn requests_follow_each_other_on_a_connection() {
        let mut bytes = request_bytes(&[("REQUEST_URI", "/a"), ("EMPTY", "")], b"user=1", 1);
        bytes.extend(request_bytes(&[("REQUEST_URI", "/b")], b"", 0));
        let mut ends = Ends(&bytes, Vec::new());
        let first = read_request(&mut ends).unwrap().unwrap();
        assert_eq!(first.param("REQUEST_URI"), Some("/a"));
        assert_eq!(first.param("EMPTY"), Some(""));
        assert_eq!(first.body, b"user=1");
        assert!(first.keeps_connection());
        let second = read_request(&mut ends).unwrap().unwrap();
        assert_eq!(second.param("REQUEST_URI"), Some("/b"));
        assert!(!second.keeps_connection());
        assert_eq!(read_request(&mut ends).unwrap(), None);
    }

    #[test]
    fn a_long_answer_is_in_several_records() {
        let mut out = Vec::new();
        let answer = vec![7; 200_000];
        write_answer(&mut out, &Request::default(), &answer).unwrap();
        let mut rest = &out[..];
        let mut body = Vec::new();
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let length = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            kinds.push(rest[1]);
            if rest[1] == STDOUT {
                body.extend_from_slice(&rest[8..8 + length]);
            }
            rest = &rest[8 + length..];
        }
        assert_eq!(body, answer);
        assert_eq!(kinds.last(), Some(&END_REQUEST));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut ends = Ends(&bytes, Vec::new());
            while let Ok(Some(_)) = read_request(&mut ends) {}
        }

        #[test]
        fn damaged_requests_are_read_or_refused(at in 0usize..90, value: u8) {
            let mut bytes = request_bytes(&[("REQUEST_URI", "/dynamic/get/x")], b"user=1", 1);
            let at = at % bytes.len();
            bytes[at] = value;
            let mut ends = Ends(&bytes, Vec::new());
            while let Ok(Some(_)) = read_request(&mut ends) {}
        }
    }
}
