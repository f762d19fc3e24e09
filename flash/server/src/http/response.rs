// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head of an answer.

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
        head.put(format_args!("HTTP/1.1 {status} {}\r\n", reason(status)));
        head.field("Date", date);
        head
    }

    pub fn field(&mut self, name: &str, value: impl fmt::Display) -> &mut Head {
        self.put(format_args!("{name}: {value}\r\n"));
        self
    }

    /// Ends the head.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        struct Into<'a>(&'a mut Vec<u8>);
        impl Write for Into<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        // Writing into memory cannot fail.
        let _ = Into(&mut self.bytes).write_fmt(text);
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

    #[test]
    fn a_head_is_lines_and_an_empty_one() {
        let mut head = Head::new(404, "Sun, 06 Nov 1994 08:49:37 GMT");
        head.field("Content-Length", 3);
        assert_eq!(
            String::from_utf8(head.finish()).expect("text"),
            "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 3\r\n\r\n"
        );
    }
}
