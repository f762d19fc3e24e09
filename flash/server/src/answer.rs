// SPDX-License-Identifier: MIT OR Apache-2.0
//! What answers a request: a head, and the bytes or the parts of a file behind it.

use std::collections::VecDeque;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::access::methods::Methods;
use crate::files::File;
use crate::http::codings::Coding;
use crate::http::conditions::{self, Validators, Verdict};
use crate::http::method::Method;
use crate::http::ranges::{self, Asked, Part};
use crate::http::request::Request;
use crate::http::response::{self, Head};
use crate::sites::{Fixed, Rules};
use crate::types::Types;

/// Of what no configuration is for.
static USUAL: LazyLock<Types> = LazyLock::new(Types::default);

pub struct Reply {
    pub status: u16,
    pub head: Vec<u8>,
    pub body: VecDeque<Segment>,
}

pub enum Segment {
    Bytes(Vec<u8>),
    /// Of several answers at once, and how much of it this one has sent.
    Shared {
        bytes: Arc<[u8]>,
        sent: usize,
    },
    File {
        file: Arc<File>,
        part: Part,
    },
}

impl From<Vec<u8>> for Segment {
    fn from(bytes: Vec<u8>) -> Segment {
        Segment::Bytes(bytes)
    }
}

impl From<Arc<[u8]>> for Segment {
    fn from(bytes: Arc<[u8]>) -> Segment {
        Segment::Shared { bytes, sent: 0 }
    }
}

impl Segment {
    /// Bytes that are still to be sent.
    pub fn left(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Shared { bytes, sent } => (bytes.len() - sent) as u64,
            Segment::File { part, .. } => part.end.saturating_sub(part.begin),
        }
    }
}

/// In which form a file is sent.
pub struct Form<'a> {
    /// Of the file as it is when it is not compressed; its type follows from it.
    pub name: &'a [u8],
    pub coding: Option<Coding>,
    /// Other clients may get another form.
    pub may_be_coded: bool,
}

impl Form<'_> {
    /// The fields that a 304 has, too: those that a cache needs (RFC 9110, 15.4.5).
    fn fields(&self, head: &mut Head, current: &Validators) {
        head.field("ETag", &current.etag);
        if self.may_be_coded {
            head.field("Vary", "Accept-Encoding");
        }
    }
}

/// What all answers have in common.
pub struct Common<'a> {
    /// In the form of RFC 9110.
    pub date: &'a str,
    /// The same in seconds since 1970.
    pub now: u64,
    /// The connection ends with this answer.
    pub closes: bool,
    /// The client speaks HTTP/1.1, where connections are kept unless somebody says otherwise.
    pub is_11: bool,
    /// HEAD: the body is left out.
    pub is_head: bool,
    /// `None`: the request could not be read, or is for the counters.
    pub rules: Option<&'a Rules>,
}

impl<'a> Common<'a> {
    /// Of an answer to what could not be read as a request. It ends the connection.
    pub fn of_no_request(date: &'a str, is_head: bool) -> Common<'a> {
        Common {
            date,
            now: u64::MAX,
            closes: true,
            is_11: true,
            is_head,
            rules: None,
        }
    }

    fn head(&self, status: u16) -> Head {
        let mut head = Head::new(status, self.date);
        head.field("Server", "flash");
        match (self.closes, self.is_11) {
            (true, _) => head.field("Connection", "close"),
            (false, false) => head.field("Connection", "keep-alive"),
            (false, true) => &mut head,
        };
        if let Some(rules) = self.rules {
            for (name, value) in &rules.fields {
                head.field(name, value);
            }
            if let (Some(time), 200 | 206 | 304) = (rules.cache, status) {
                head.field("Cache-Control", format_args!("max-age={}", time.as_secs()));
            }
        }
        head
    }

    fn methods(&self) -> Methods {
        let methods = self.rules.and_then(|rules| rules.access.methods);
        let methods = methods.unwrap_or(Methods::ALL);
        match self.rules.is_some_and(|rules| rules.upstream.is_some()) {
            true => methods,
            false => methods.for_files(),
        }
    }

    fn text(&self, mut head: Head, status: u16, kind: &str, text: impl Into<Segment>) -> Reply {
        let text = text.into();
        head.field("Content-Type", kind)
            .field("Content-Length", text.left());
        let body = match self.is_head {
            true => VecDeque::new(),
            false => VecDeque::from([text]),
        };
        Reply {
            status,
            head: head.finish(),
            body,
        }
    }

    fn empty(head: Head, status: u16) -> Reply {
        Reply {
            status,
            head: head.finish(),
            body: VecDeque::new(),
        }
    }

    /// An error, with a page that says which.
    pub fn error(&self, status: u16) -> Reply {
        self.error_page(self.head_of_error(status), status)
    }

    fn error_page(&self, head: Head, status: u16) -> Reply {
        let own = self.rules.and_then(|rules| rules.error_pages.get(&status));
        let page = match own {
            Some(page) => Segment::from(Arc::clone(page)),
            None => response::error_page(status).into_bytes().into(),
        };
        self.text(head, status, "text/html; charset=utf-8", page)
    }

    /// With the fields that an answer with this status has to have.
    fn head_of_error(&self, status: u16) -> Head {
        let mut head = self.head(status);
        match status {
            401 => {
                if let Some(auth) = self.rules.and_then(|rules| rules.auth.as_ref()) {
                    auth.challenge(&mut head);
                }
                &mut head
            }
            405 => head.field("Allow", format_args!("{}", self.methods())),
            429 | 503 => head.field("Retry-After", "1"),
            _ => &mut head,
        };
        head
    }

    /// To where the configuration says.
    pub fn redirect(&self, to: &str, status: u16) -> Reply {
        // Two slashes at the begin would be the name of another host.
        let local = to.trim_start_matches('/');
        let mut head = self.head(status);
        match local.len() < to.len() {
            true => head.field("Location", format_args!("/{local}")),
            false => head.field("Location", to),
        };
        let page = response::error_page(status).into_bytes();
        self.text(head, status, "text/html; charset=utf-8", page)
    }

    /// What the configuration says.
    pub fn fixed(&self, fixed: &Fixed) -> Reply {
        match &fixed.text {
            Some(text) => {
                let text = text.clone().into_bytes();
                let head = self.head_of_error(fixed.status);
                self.text(head, fixed.status, &fixed.kind, text)
            }
            // It has no content (RFC 9110, 15.3.5).
            None if fixed.status == 204 => Common::empty(self.head(204), 204),
            None => self.error(fixed.status),
        }
    }

    /// To a request that came without TLS where TLS is spoken.
    pub fn not_tls(&self) -> Reply {
        let page = "<!doctype html>\n<meta charset=\"utf-8\">\n<title>400 Bad Request</title>\n\
                    <h1>400 Bad Request</h1>\n\
                    <p>This port speaks HTTPS: the address begins with https://, not with http://.</p>\n";
        let page = page.as_bytes().to_vec();
        self.text(self.head(400), 400, "text/html; charset=utf-8", page)
    }

    pub fn options(&self) -> Reply {
        let mut head = self.head(204);
        head.field("Allow", format_args!("{}", self.methods()));
        Common::empty(head, 204)
    }

    pub fn page(&self, kind: &str, page: impl Into<Segment>) -> Reply {
        self.text(self.head(200), 200, kind, page)
    }

    /// To the same path with a slash behind it.
    pub fn to_directory(&self, raw: &str, query: Option<&str>) -> Reply {
        // Two slashes at the begin would be the name of another host.
        let path = raw.trim_start_matches('/');
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let mut head = self.head(301);
        head.field("Location", format_args!("/{path}/{query}"));
        let page = response::error_page(301).into_bytes();
        self.text(head, 301, "text/html; charset=utf-8", page)
    }

    /// A file, a part of it, or only that it is still the same.
    pub fn file(&self, request: &Request, file: &Arc<File>, form: &Form<'_>) -> Reply {
        let current = &file.validators;
        match conditions::evaluate(&request.conditions, request.method, current) {
            Verdict::Proceed => {}
            Verdict::Failed => return self.error(412),
            Verdict::NotModified => {
                let mut head = self.head(304);
                form.fields(&mut head, current);
                return Common::empty(head, 304);
            }
        }
        let whole = Part {
            begin: 0,
            end: file.size,
        };
        let asked = match &request.conditions.range {
            Some(range)
                if request.method == Method::Get
                    && conditions::range_holds(&request.conditions, current, self.now) =>
            {
                ranges::parse(range, file.size)
            }
            _ => Asked::Whole,
        };
        match asked {
            Asked::Whole => self.parts(file, form, 200, &[whole]),
            Asked::Parts(parts) => self.parts(file, form, 206, &parts),
            Asked::Unsatisfiable => {
                let mut head = self.head(416);
                head.field("Content-Range", format_args!("bytes */{}", file.size));
                self.error_page(head, 416)
            }
        }
    }

    fn parts(&self, file: &Arc<File>, form: &Form<'_>, status: u16, parts: &[Part]) -> Reply {
        let types = self.rules.map_or(&*USUAL, |rules| &rules.types);
        let kind = types.of(form.name);
        let size = file.size;
        let mut head = self.head(status);
        let of_file = |part: &Part| Segment::File {
            file: Arc::clone(file),
            part: *part,
        };
        let mut body = VecDeque::new();
        let length = match parts {
            [part] => {
                head.field("Content-Type", &kind);
                if status == 206 {
                    let (begin, last) = (part.begin, part.end - 1);
                    head.field("Content-Range", format_args!("bytes {begin}-{last}/{size}"));
                }
                if part.begin < part.end {
                    body.push_back(of_file(part));
                }
                part.end - part.begin
            }
            several => {
                let boundary = boundary();
                let kind_of_parts = format_args!("multipart/byteranges; boundary={boundary}");
                head.field("Content-Type", kind_of_parts);
                let mut length = 0;
                for part in several {
                    let mut before = String::new();
                    let (begin, last) = (part.begin, part.end - 1);
                    // Writing into memory cannot fail.
                    let _ = write!(
                        before,
                        "\r\n--{boundary}\r\nContent-Type: {kind}\r\n\
                         Content-Range: bytes {begin}-{last}/{size}\r\n\r\n"
                    );
                    length += before.len() as u64 + (part.end - part.begin);
                    body.push_back(Segment::Bytes(before.into_bytes()));
                    body.push_back(of_file(part));
                }
                let end = format!("\r\n--{boundary}--\r\n");
                length += end.len() as u64;
                body.push_back(Segment::Bytes(end.into_bytes()));
                length
            }
        };
        if let Some(coding) = form.coding {
            head.field("Content-Encoding", coding.name());
        }
        head.field("Content-Length", length)
            .field("Accept-Ranges", "bytes");
        // A time in the future is not to be sent (RFC 9110, 8.8.2.1).
        let modified = file.validators.modified.min(self.now);
        head.field("Last-Modified", conditions::date(modified));
        form.fields(&mut head, &file.validators);
        if self.is_head {
            body.clear();
        }
        Reply {
            status,
            head: head.finish(),
            body,
        }
    }
}

/// The separator of the parts. It is random, so no file can contain it on purpose.
fn boundary() -> String {
    let random = RandomState::new().hash_one(0);
    format!("part-{random:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> Common<'static> {
        Common {
            date: "",
            now: 0,
            closes: false,
            is_11: true,
            is_head: false,
            rules: None,
        }
    }

    #[test]
    fn an_error_with_a_text_of_its_own_has_the_fields_of_its_status() {
        for (status, field) in [(405, "\r\nAllow: GET, HEAD"), (503, "\r\nRetry-After: ")] {
            let fixed = Fixed {
                status,
                text: Some("no".to_string()),
                kind: "text/plain".to_string(),
            };
            let head = String::from_utf8(common().fixed(&fixed).head).expect("text");
            assert!(head.contains(field), "{head}");
        }
    }

    #[test]
    fn a_redirect_stays_on_this_host() {
        let common = common();
        let head = common.to_directory("//example.org/a", Some("b")).head;
        let head = String::from_utf8(head).expect("text");
        assert!(head.contains("Location: /example.org/a/?b\r\n"), "{head}");
    }
}
