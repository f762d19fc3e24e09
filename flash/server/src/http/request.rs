// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the head of a request.
//!
//! `httparse` splits it into fields. It accepts more than RFC 9112 lets a server accept: a line feed alone, and any
//! combination of `Host`, `Content-Length` and `Transfer-Encoding`. Requests that two servers can read in two ways are
//! how requests are smuggled, so they are refused here.

use super::credentials::Authorization;
use super::target::{self, Target};

/// Fields of one request; one with more is refused.
pub const MAX_FIELDS: usize = 100;
/// Bytes of a method.
const MAX_METHOD: usize = 32;
/// Empty lines before a request line that are passed over (RFC 9112, 2.2, asks for at least one).
const MAX_EMPTY_LINES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Options,
    /// Its target is an authority, and what follows its head might be for another server.
    Connect,
    /// Known, but there is no file that it could be done to. What an upstream does with it is its own affair.
    Put,
    Delete,
    Trace,
    Post,
    Patch,
    /// Of an extension, as PROPFIND.
    Unknown,
}

/// How the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// The fields by which a client asks for a part, or only for what it does not have yet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Conditions {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<String>,
    pub if_unmodified_since: Option<String>,
    pub if_range: Option<String>,
    pub range: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    /// HTTP/1.1, and not 1.0.
    pub is_11: bool,
    /// Without the port; empty if the client named none.
    pub host: String,
    pub keeps_alive: bool,
    pub body: Framing,
    pub expects_continue: bool,
    pub conditions: Conditions,
    pub accept_encoding: Option<String>,
    pub authorization: Option<Authorization>,
    /// Who the client has proved to be.
    pub user: Option<String>,
    /// All that came, if an upstream is to answer.
    pub fields: Vec<(String, Vec<u8>)>,
    /// For the access log.
    pub line: String,
    pub referer: Option<String>,
    pub user_agent: Option<String>,
}

/// A request that is answered with an error at once. The connection is closed then, because it is not certain where
/// the next request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub why: &'static str,
}

impl Request {
    /// Why it is for no file, whatever there is.
    pub fn no_file(&self) -> Option<Refusal> {
        match (&self.target, self.method) {
            (_, Method::Unknown) => Some(UNKNOWN_METHOD),
            (Target::Path(path), _) => path.no_file,
            (Target::Server, _) => None,
        }
    }

    /// As the client wrote it.
    pub fn method_name(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }
}

impl Refusal {
    pub const fn new(status: u16, why: &'static str) -> Refusal {
        Refusal { status, why }
    }
}

const BAD: fn(&'static str) -> Refusal = |why| Refusal::new(400, why);

/// What the bytes received so far are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The beginning of a head.
    Incomplete,
    /// A request, and the length of its head.
    Request(Box<Request>, usize),
    Refused(Refusal),
}

/// Finds requests in the bytes of a connection, without looking at any byte twice.
#[derive(Debug, Default)]
pub struct Reader {
    scanned: usize,
    /// The request line is there and valid.
    has_line: bool,
}

impl Reader {
    /// `max_head`: bytes of a head; one that is longer is refused. `received` begins where the last request ended.
    pub fn read(&mut self, received: &[u8], max_head: usize) -> Parsed {
        let parsed = self.find(received, max_head);
        if parsed != Parsed::Incomplete {
            *self = Reader::default();
        }
        parsed
    }

    fn find(&mut self, received: &[u8], max_head: usize) -> Parsed {
        let mut begin = 0;
        while received[begin..].starts_with(b"\r\n") && begin < 2 * MAX_EMPTY_LINES {
            begin += 2;
        }
        // What is no request at all, like a client that speaks TLS, need not be waited for.
        if received
            .get(begin)
            .is_some_and(|byte| !is_token(*byte) && *byte != b'\r')
        {
            return Parsed::Refused(BAD("this is not the begin of a request"));
        }
        // Bytes behind the longest head change nothing, however many have been received with it.
        let head_end = received.len().min(begin.saturating_add(max_head));
        let received = &received[..head_end];
        self.scanned = self.scanned.max(begin);
        while let Some(at) = memchr::memchr(b'\n', &received[self.scanned..]) {
            let at = self.scanned + at;
            if at == 0 || received[at - 1] != b'\r' {
                return Parsed::Refused(BAD("a line ends without a carriage return"));
            }
            if !self.has_line {
                if let Err(refusal) = request_line(&received[begin..at - 1]) {
                    return Parsed::Refused(refusal);
                }
                self.has_line = true;
            }
            if received[begin..=at].ends_with(b"\r\n\r\n") {
                return match parse(&received[begin..=at]) {
                    Ok(request) => Parsed::Request(Box::new(request), at + 1),
                    Err(refusal) => Parsed::Refused(refusal),
                };
            }
            self.scanned = at + 1;
        }
        self.scanned = received.len();
        let is_too_long = received.len() - begin >= max_head;
        match (is_too_long, self.has_line) {
            (false, _) => Parsed::Incomplete,
            // RFC 9112, 3, has a status for each of the two.
            (true, false) if memchr::memchr(b' ', &received[begin..]).is_none() => {
                Parsed::Refused(Refusal::new(501, "the method is too long"))
            }
            (true, false) => Parsed::Refused(Refusal::new(414, "the request line is too long")),
            (true, true) => Parsed::Refused(Refusal::new(431, "the fields are too long")),
        }
    }
}

/// A character of a method (RFC 9110, 5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The method, the target, and whether the version is 1.1 and not 1.0. A later HTTP/1 is read as 1.1, the latest that is
/// known here (RFC 9110, 2.5).
fn request_line(line: &[u8]) -> Result<(Method, &str, bool), Refusal> {
    const WRONG: Refusal = Refusal::new(400, "the request line is not valid");
    let line = std::str::from_utf8(line).map_err(|_| WRONG)?;
    let mut parts = line.split(' ');
    let (Some(name), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(WRONG);
    };
    if name.is_empty() || !name.bytes().all(is_token) || target.is_empty() {
        return Err(WRONG);
    }
    let is_11 = match version.strip_prefix("HTTP/").map(str::as_bytes) {
        Some(b"1.0") => false,
        Some([b'1', b'.', b'1'..=b'9']) => true,
        Some([b'0'..=b'9', b'.', b'0'..=b'9']) => {
            return Err(Refusal::new(505, "only HTTP/1 is served"))
        }
        _ => return Err(WRONG),
    };
    Ok((method(name)?, target, is_11))
}

/// A whole head.
fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let end = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let (line, rest) = head.split_at(end);
    let line = line.trim_ascii_end();
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let headers = match httparse::parse_headers(rest, &mut headers) {
        Ok(httparse::Status::Complete((length, headers))) if length == rest.len() => headers,
        Ok(_) => return Err(BAD("the head does not end where its empty line is")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(431, "there are too many fields"))
        }
        Err(_) => return Err(BAD("the fields cannot be parsed")),
    };
    let (method, target, is_11) = request_line(line)?;
    let fields = Fields::read(headers)?;
    let (target, authority) = target::parse(target, method)?;
    let host = match (fields.host, authority) {
        (None, _) if is_11 => return Err(BAD("HTTP/1.1 requests need a Host field")),
        // The field has to be right even where the target has the authority (RFC 9112, 3.2.2).
        (named, Some(authority)) => {
            named.map(host).transpose()?;
            host(authority)?
        }
        (Some(named), None) => match host(named)? {
            host if host.is_empty() && is_11 => return Err(BAD_HOST),
            host => host,
        },
        (None, None) => String::new(),
    };
    let body = fields.framing(is_11)?;
    let expect = fields.expect.as_deref().unwrap_or_default();
    let mut expectations = elements(expect).peekable();
    let expects_continue = is_11 && expectations.peek().is_some();
    if expectations.any(|one| !one.eq_ignore_ascii_case("100-continue")) {
        return Err(Refusal::new(417, "only 100-continue can be expected"));
    }
    let keeps_alive = match is_11 {
        true => !fields.closes,
        false => fields.keeps_alive && !fields.closes,
    };
    Ok(Request {
        method,
        target,
        is_11,
        host,
        keeps_alive,
        body,
        expects_continue,
        conditions: fields.conditions,
        accept_encoding: fields.accept_encoding,
        authorization: fields.authorization,
        user: None,
        fields: Vec::new(),
        line: String::from_utf8_lossy(line).into_owned(),
        referer: fields.referer,
        user_agent: fields.user_agent,
    })
}

/// Of a request for a file.
pub const UNKNOWN_METHOD: Refusal = Refusal::new(501, "the method is not known");

fn method(name: &str) -> Result<Method, Refusal> {
    match name {
        "GET" => Ok(Method::Get),
        "HEAD" => Ok(Method::Head),
        "OPTIONS" => Ok(Method::Options),
        "CONNECT" => Ok(Method::Connect),
        "POST" => Ok(Method::Post),
        "PUT" => Ok(Method::Put),
        "DELETE" => Ok(Method::Delete),
        "PATCH" => Ok(Method::Patch),
        "TRACE" => Ok(Method::Trace),
        // None of an extension is as long, and none has small letters, which are a mistake.
        name if name.len() > MAX_METHOD => Err(UNKNOWN_METHOD),
        name if name.bytes().any(|byte| byte.is_ascii_lowercase()) => Err(UNKNOWN_METHOD),
        _ => Ok(Method::Unknown),
    }
}

/// Checks `host[:port]` (RFC 3986, 3.2.2) and returns the host in lower case, without the dot that stands for the root of
/// the name system.
fn host(named: &str) -> Result<String, Refusal> {
    const WRONG: Refusal = BAD_HOST;
    let (host, port) = match named.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(WRONG)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| WRONG)?;
            (&named[..address.len() + 2], port)
        }
        None => {
            let end = named.find(':').unwrap_or(named.len());
            let host = &named[..end];
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
            if !host.bytes().all(is_allowed) {
                return Err(WRONG);
            }
            (host, &named[end..])
        }
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || port.starts_with(':');
    if !is_port || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG);
    }
    let is_number = digits.is_empty() || digits.parse::<u16>().is_ok();
    if !is_number || !target::has_valid_escapes(host) {
        return Err(WRONG);
    }
    match host.strip_suffix('.') {
        Some("") => Err(WRONG),
        Some(relative) => Ok(relative.to_ascii_lowercase()),
        None => Ok(host.to_ascii_lowercase()),
    }
}

const BAD_HOST: Refusal = Refusal::new(400, "the host is not valid");

/// What the fields say that matters here.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    length: Option<u64>,
    codings: Option<String>,
    expect: Option<String>,
    closes: bool,
    keeps_alive: bool,
    conditions: Conditions,
    accept_encoding: Option<String>,
    authorization: Option<Authorization>,
    referer: Option<String>,
    user_agent: Option<String>,
}

/// The fields of a head that [`Reader`] has accepted, as they came, without spaces around the values.
pub fn fields(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let begin = head.iter().position(|byte| !b"\r\n".contains(byte));
    let head = &head[begin.unwrap_or(0)..];
    let end = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(&head[end..], &mut headers) {
        Ok(httparse::Status::Complete((_, headers))) => headers
            .iter()
            .map(|header| (header.name.to_string(), header.value.trim_ascii().to_vec()))
            .collect(),
        _ => Vec::new(),
    }
}

impl<'a> Fields<'a> {
    fn read(headers: &[httparse::Header<'a>]) -> Result<Fields<'a>, Refusal> {
        let mut fields = Fields::default();
        // A field that can be there once and is there twice is not valid.
        let mut seen_range = 0;
        let mut seen_if_range = 0;
        let mut seen_since = 0;
        let mut seen_unmodified = 0;
        let mut seen_authorization = 0;
        for header in headers {
            let name = header.name;
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let text = || -> Option<&'a str> {
                let text = std::str::from_utf8(header.value).ok()?;
                Some(text.trim_matches([' ', '\t']))
            };
            // Entity tags may have bytes that are no UTF-8.
            let owned = || {
                let text = String::from_utf8_lossy(header.value);
                Some(text.trim_matches([' ', '\t']).to_string())
            };
            if is("host") {
                if fields.host.is_some() {
                    return Err(BAD("there are two Host fields"));
                }
                fields.host = Some(text().ok_or(BAD_HOST)?);
            } else if is("content-length") {
                if fields.length.is_some() {
                    return Err(BAD("there are two Content-Length fields"));
                }
                fields.length = Some(content_length(text().unwrap_or("?"))?);
            } else if is("transfer-encoding") {
                let coding = text().ok_or(BAD("Transfer-Encoding is not valid"))?;
                match &mut fields.codings {
                    Some(before) => before.extend([",", coding]),
                    None => fields.codings = Some(coding.to_string()),
                }
            } else if is("connection") {
                for token in text().unwrap_or_default().split(',').map(str::trim) {
                    fields.closes |= token.eq_ignore_ascii_case("close");
                    fields.keeps_alive |= token.eq_ignore_ascii_case("keep-alive");
                }
            } else if is("expect") {
                join(&mut fields.expect, owned());
            } else if is("range") {
                seen_range += 1;
                fields.conditions.range = owned().filter(|_| seen_range == 1);
            } else if is("if-range") {
                // It holds for no file then, so that the whole is sent.
                seen_if_range += 1;
                let one = owned().filter(|_| seen_if_range == 1);
                fields.conditions.if_range = Some(one.unwrap_or_default());
            } else if is("if-match") {
                join(&mut fields.conditions.if_match, owned());
            } else if is("if-none-match") {
                join(&mut fields.conditions.if_none_match, owned());
            } else if is("if-modified-since") {
                seen_since += 1;
                fields.conditions.if_modified_since = owned().filter(|_| seen_since == 1);
            } else if is("if-unmodified-since") {
                seen_unmodified += 1;
                fields.conditions.if_unmodified_since = owned().filter(|_| seen_unmodified == 1);
            } else if is("accept-encoding") {
                join(&mut fields.accept_encoding, owned());
            } else if is("authorization") {
                seen_authorization += 1;
                let one = owned().filter(|_| seen_authorization == 1);
                fields.authorization = one.map(Authorization);
            } else if is("referer") {
                fields.referer = owned();
            } else if is("user-agent") {
                fields.user_agent = owned();
            }
        }
        Ok(fields)
    }

    /// RFC 9112, 6.3: how long the body is. Whatever is not certain is refused.
    fn framing(&self, is_11: bool) -> Result<Framing, Refusal> {
        let Some(codings) = &self.codings else {
            return Ok(match self.length {
                None | Some(0) => Framing::None,
                Some(length) => Framing::Length(length),
            });
        };
        if !is_11 {
            return Err(BAD("HTTP/1.0 has no Transfer-Encoding"));
        }
        if self.length.is_some() {
            return Err(BAD(
                "Content-Length and Transfer-Encoding contradict each other",
            ));
        }
        let is_chunked = |coding: &str| coding.eq_ignore_ascii_case("chunked");
        let codings: Vec<&str> = elements(codings).collect();
        match codings.split_last() {
            Some((last, [])) if is_chunked(last) => Ok(Framing::Chunked),
            Some((last, before))
                if is_chunked(last) && !before.iter().any(|one| is_chunked(one)) =>
            {
                let why = "only the transfer coding chunked is known";
                Err(Refusal::new(501, why))
            }
            _ => Err(BAD(
                "chunked must be the last transfer coding, and only that",
            )),
        }
    }
}

/// The elements of a list of fields; empty ones do not count (RFC 9110, 5.6.1.2).
pub fn elements(list: &str) -> impl Iterator<Item = &str> {
    let elements = list.split(',').map(|one| one.trim_matches([' ', '\t']));
    elements.filter(|one| !one.is_empty())
}

/// Several fields of a list are one list.
fn join(list: &mut Option<String>, more: Option<String>) {
    match (list.as_mut(), more) {
        (Some(list), Some(more)) => {
            list.push_str(", ");
            list.push_str(&more);
        }
        (None, Some(more)) => *list = Some(more),
        (_, None) => {}
    }
}

fn content_length(text: &str) -> Result<u64, Refusal> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD("Content-Length is not a number"));
    }
    let length = text.parse::<u64>();
    length.map_err(|_| BAD("Content-Length is too large a number"))
}

#[cfg(test)]
mod tests;
