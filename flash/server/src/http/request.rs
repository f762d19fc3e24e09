// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the head of a request.
//!
//! `httparse` splits it into fields. It accepts more than RFC 9112 lets a server accept: a line feed alone, and any
//! combination of `Host`, `Content-Length` and `Transfer-Encoding`. Requests that two servers can read in two ways are
//! how requests are smuggled, so they are refused here.

use super::credentials::Authorization;
use super::fields::{elements, Conditions, Fields, Framing, MAX_FIELDS};
use super::host::{host, BAD_HOST};
use super::method::{is_token, Method};
use super::refusal::{Refusal, BAD, UNKNOWN_METHOD};
use super::target::{self, Target};

/// Empty lines before a request line that are passed over (RFC 9112, 2.2, asks for at least one).
const MAX_EMPTY_LINES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    /// HTTP/1.1, and not 1.0.
    pub is_11: bool,
    /// Without the port; empty if the client named none.
    pub host: String,
    /// The target is a URL with `https`.
    pub is_https: bool,
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

impl Request {
    /// Why it is for no file, whatever there is.
    pub fn no_file(&self) -> Option<Refusal> {
        match (&self.target, self.method) {
            (_, Method::Unknown) => Some(UNKNOWN_METHOD),
            (Target::Path(path), _) => path.no_file,
            (Target::Server, _) => None,
        }
    }

    /// It asks for all of a file, whatever the client has of it.
    pub fn wants_whole_file(&self) -> bool {
        self.method == Method::Get && self.conditions == Conditions::default()
    }

    /// As the client wrote it.
    pub fn method_name(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }
}

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
    Ok((Method::of(name)?, target, is_11))
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
            host(authority.text)?
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
        is_https: authority.is_some_and(|authority| authority.is_https),
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

#[cfg(test)]
mod tests;
