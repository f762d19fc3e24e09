// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1.1 to an upstream: a request is written from its parts again, never passed on as it came, and an answer that two
//! programs could read in two ways is none.

use std::net::IpAddr;

use super::answer::{Head, Malformed, Step};
use crate::http::chunked::{Chunked, Piece};
use crate::http::request::{elements, is_token, Framing, Method, Request};

/// Bytes and fields of an answer's head.
const MAX_HEAD: usize = 64 << 10;
const MAX_FIELDS: usize = 200;
/// Answers with 1xx before the one that counts.
const MAX_INTERIM: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub host: Host,
    pub forwarded: Forwarded,
    /// What the client says of those before it is passed on. It can say anything.
    pub trusts_client: bool,
}

/// Which `Host` the upstream sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Host {
    #[default]
    Client,
    Name(String),
}

/// How the upstream learns for whom it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[default]
    Separate,
    /// `Forwarded` (RFC 7239).
    Standard,
    None,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub address: Option<IpAddr>,
    pub is_secure: bool,
}

pub type Field = (String, Vec<u8>);

/// Fields between two neighbours (RFC 9110, 7.6.1), and those that are written again.
const OWN: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
/// What only a server in front may say. Programs take `_` for `-`.
const OF_THE_SERVER_IN_FRONT: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Whether a field is of its connection only. `named`: the elements of `Connection`.
fn is_of_connection(name: &str, named: &[String]) -> bool {
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    OWN.iter().any(|own| is(own)) || named.iter().any(|own| is(own))
}

/// The elements of all fields of a name, in lower case.
fn list(fields: &[Field], name: &str) -> Vec<String> {
    let its = fields
        .iter()
        .filter(|(its, _)| its.eq_ignore_ascii_case(name));
    its.flat_map(|(_, value)| {
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        elements(&text).map(str::to_string).collect::<Vec<_>>()
    })
    .collect()
}

/// The fields of a request that are for the upstream, whatever its protocol.
pub fn end_to_end(fields: &[Field], trusts_client: bool) -> impl Iterator<Item = &Field> {
    let named = list(fields, "connection");
    fields.iter().filter(move |(name, _)| {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let is_claim = OF_THE_SERVER_IN_FRONT.contains(&plain.as_str());
        !is_of_connection(name, &named) && (trusts_client || !is_claim)
    })
}

/// The other protocol that the client wants to speak.
pub fn upgrade(request: &Request, fields: &[Field]) -> Option<String> {
    let wants = list(fields, "connection")
        .iter()
        .any(|one| one == "upgrade");
    let protocols = list(fields, "upgrade");
    match protocols.as_slice() {
        // Over HTTP/2 requests would pass that nobody here has looked at.
        [one]
            if wants
                && request.is_11
                && request.body == Framing::None
                && !one.starts_with("h2") =>
        {
            let is_name = |byte: u8| is_token(byte) || byte == b'/';
            one.bytes().all(is_name).then(|| one.clone())
        }
        _ => None,
    }
}

/// The host and port that the client names, as it wrote them.
pub fn authority<'a>(request: &'a Request, fields: &'a [Field]) -> &'a str {
    let target = request.line.split(' ').nth(1).unwrap_or_default();
    if let (false, Some((_, rest))) = (target.starts_with('/'), target.split_once("://")) {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        return &rest[..end];
    }
    let host = fields
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let text = host.and_then(|(_, value)| std::str::from_utf8(value).ok());
    text.unwrap_or_default()
}

/// Everything in front of the body.
pub fn head(
    request: &Request,
    fields: &[Field],
    target: &str,
    client: Client,
    options: &Options,
    upgrade: Option<&str>,
) -> Vec<u8> {
    let begin = format!("{} {target} HTTP/1.1\r\n", request.method_name());
    let mut head = begin.into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let named = authority(request, fields);
    let host = match &options.host {
        Host::Name(name) => name,
        Host::Client if named.is_empty() => "localhost",
        Host::Client => named,
    };
    line("Host", host.as_bytes());
    for (name, value) in end_to_end(fields, options.trusts_client) {
        let is_claim = name.eq_ignore_ascii_case("x-forwarded-for");
        let hops = name.eq_ignore_ascii_case("max-forwards");
        match (is_claim && options.forwarded == Forwarded::Separate, hops) {
            // It is written together with the client's own address.
            (true, _) => {}
            (_, true) if matches!(request.method, Method::Options) => {
                let left = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok());
                let left = left.unwrap_or(1u32).saturating_sub(1);
                line(name, left.to_string().as_bytes());
            }
            _ => line(name, value),
        }
    }
    for (name, value) in forwarded(fields, named, client, options) {
        line(name, value.as_bytes());
    }
    let via = list_as_written(fields, "via");
    let version = if request.is_11 { "1.1" } else { "1.0" };
    let via = match via.is_empty() {
        true => format!("{version} flash"),
        false => format!("{via}, {version} flash"),
    };
    line("Via", via.as_bytes());
    match request.body {
        Framing::Length(length) => line("Content-Length", length.to_string().as_bytes()),
        Framing::Chunked => line("Transfer-Encoding", b"chunked"),
        // Some programs wait for a body unless they are told that there is none.
        Framing::None => match request.method {
            Method::Post | Method::Put | Method::Patch => line("Content-Length", b"0"),
            _ => {}
        },
    }
    if let Some(protocol) = upgrade {
        line("Connection", b"upgrade");
        line("Upgrade", protocol.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn list_as_written(fields: &[Field], name: &str) -> String {
    let its = fields
        .iter()
        .filter(|(its, _)| its.eq_ignore_ascii_case(name));
    let values = its.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    values.collect::<Vec<_>>().join(", ")
}

fn forwarded(
    fields: &[Field],
    host: &str,
    client: Client,
    options: &Options,
) -> Vec<(&'static str, String)> {
    let scheme = if client.is_secure { "https" } else { "http" };
    match options.forwarded {
        Forwarded::None => Vec::new(),
        Forwarded::Separate => {
            let said = |name: &str| match options.trusts_client {
                true => list_as_written(fields, name),
                false => String::new(),
            };
            let mut before = said("x-forwarded-for");
            if let Some(address) = client.address {
                if !before.is_empty() {
                    before.push_str(", ");
                }
                before.push_str(&address.to_string());
            }
            let mut all = vec![("X-Forwarded-For", before)];
            if said("x-forwarded-proto").is_empty() {
                all.push(("X-Forwarded-Proto", scheme.to_string()));
            }
            if said("x-forwarded-host").is_empty() && !host.is_empty() {
                all.push(("X-Forwarded-Host", host.to_string()));
            }
            all.retain(|(_, value)| !value.is_empty());
            all
        }
        Forwarded::Standard => {
            let address = match client.address {
                Some(IpAddr::V4(address)) => address.to_string(),
                Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
                None => "unknown".to_string(),
            };
            let mut value = format!("for={address};proto={scheme}");
            // A valid host has no quote (RFC 3986, 3.2.2).
            if !host.is_empty() {
                value.push_str(&format!(";host=\"{host}\""));
            }
            vec![("Forwarded", value)]
        }
    }
}

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

#[cfg(test)]
mod tests;
