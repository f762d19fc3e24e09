// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head of an answer.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Fields that the server writes itself; a second one would make an answer invalid or ambiguous.
pub const OWN_FIELDS: [&str; 13] = [
    "accept-ranges",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "location",
    "server",
    "transfer-encoding",
    "vary",
];

/// Why a status is what it is, for people.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        402 => "Payment Required",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

/// A head while it is written, into the bytes that go to the socket.
pub struct Head {
    bytes: Vec<u8>,
}

impl Head {
    /// `date`: the current time in the form of RFC 9110.
    pub fn new(status: u16, date: &str) -> Head {
        let mut head = Head {
            bytes: Vec::with_capacity(256),
        };
        head.bytes.extend_from_slice(b"HTTP/1.1 ");
        u64::from(status).put(&mut head.bytes);
        head.bytes.push(b' ');
        reason(status).put(&mut head.bytes);
        head.bytes.extend_from_slice(b"\r\n");
        head.field("Date", date);
        head
    }

    pub fn field(&mut self, name: &str, value: impl Value) -> &mut Head {
        let bytes = &mut self.bytes;
        bytes.reserve(name.len() + 64);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        value.put(bytes);
        bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Ends the head.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }
}

/// What a field can have as its value. Each answer has ten of them: text and numbers go there without `fmt`.
pub trait Value {
    fn put(&self, into: &mut Vec<u8>);
}

impl Value for str {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }
}

impl Value for String {
    fn put(&self, into: &mut Vec<u8>) {
        self.as_str().put(into);
    }
}

impl Value for Cow<'_, str> {
    fn put(&self, into: &mut Vec<u8>) {
        self.as_ref().put(into);
    }
}

impl Value for u64 {
    fn put(&self, into: &mut Vec<u8>) {
        let (mut digits, mut at, mut rest) = ([0; 20], 20, *self);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return into.extend_from_slice(&digits[at..]);
            }
        }
    }
}

impl Value for usize {
    fn put(&self, into: &mut Vec<u8>) {
        (*self as u64).put(into);
    }
}

impl Value for fmt::Arguments<'_> {
    fn put(&self, into: &mut Vec<u8>) {
        struct Into<'a>(&'a mut Vec<u8>);
        impl Write for Into<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        // Writing into memory cannot fail.
        let _ = Into(into).write_fmt(*self);
    }
}

impl<T: Value + ?Sized> Value for &T {
    fn put(&self, into: &mut Vec<u8>) {
        (**self).put(into);
    }
}

/// The page that goes with an error.
pub fn error_page(status: u16) -> String {
    let title = format!("{status} {}", reason(status));
    format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_they_are_elsewhere(number: u64) {
            let mut written = Vec::new();
            number.put(&mut written);
            prop_assert_eq!(String::from_utf8(written).expect("digits"), number.to_string());
        }
    }

    #[test]
    fn a_head_is_lines_and_an_empty_one() {
        let mut head = Head::new(404, "Sun, 06 Nov 1994 08:49:37 GMT");
        head.field("Content-Length", 3usize);
        assert_eq!(
            String::from_utf8(head.finish()).expect("text"),
            "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 3\r\n\r\n"
        );
    }
}
