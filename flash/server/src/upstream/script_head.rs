// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head of what a program answers over CGI or FastCGI (RFC 3875, section 6).

use super::answer::{Head, Malformed};
use super::http::Field;
use crate::http::method::is_token;

/// Bytes of a head.
pub const MAX_HEAD: usize = 64 << 10;

/// What is between the server and the client only.
const OWN: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "status",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Collects a head, and finds its end.
#[derive(Debug, Default)]
pub struct Collector {
    bytes: Vec<u8>,
    scanned: usize,
}

impl Collector {
    /// Adds bytes. If the head ends among them: how many are behind it, and the head.
    ///
    /// # Errors
    ///
    /// It is no head.
    pub fn add(&mut self, more: &[u8]) -> Result<Option<(usize, Head)>, Malformed> {
        self.bytes.extend_from_slice(more);
        while let Some(at) = memchr::memchr(b'\n', &self.bytes[self.scanned..]) {
            let line = &self.bytes[self.scanned..self.scanned + at];
            self.scanned += at + 1;
            if self.scanned > MAX_HEAD {
                break;
            }
            if line.is_empty() || line == b"\r" {
                let behind = self.bytes.len() - self.scanned;
                let head = parse(&self.bytes[..self.scanned])?;
                self.bytes = Vec::new();
                return Ok(Some((behind, head)));
            }
        }
        match self.bytes.len() > MAX_HEAD {
            true => Err(Malformed("the head is too long")),
            false => Ok(None),
        }
    }
}

fn parse(head: &[u8]) -> Result<Head, Malformed> {
    let mut fields: Vec<Field> = Vec::new();
    let mut status = None;
    let mut length = None;
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or(Malformed("a line is no field"))?);
        let value = value[1..].trim_ascii();
        let is_wrong = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || value.iter().any(is_wrong)
        {
            return Err(Malformed("a field is not valid"));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        if name.eq_ignore_ascii_case("status") {
            status = Some(status_line(value).ok_or(Malformed("the status is not valid"))?);
        } else if name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(value).unwrap_or_default();
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number && length.is_none());
            length = Some(number.ok_or(Malformed("Content-Length is not one number"))?);
        } else if !OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            fields.push((name, value.to_vec()));
        }
    }
    if fields.is_empty() && status.is_none() && length.is_none() {
        return Err(Malformed("there is no field"));
    }
    let leads = fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("location"));
    let usual = if leads { 302 } else { 200 };
    let (status, reason) = status.unwrap_or((usual, String::new()));
    Ok(Head {
        status,
        reason,
        fields,
        length: length.filter(|_| status != 204),
    })
}

/// `404 Not Found`, the reason of which can be missing.
fn status_line(value: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(value).ok()?;
    let (digits, reason) = text.split_once(' ').unwrap_or((text, ""));
    let is_status = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let status = digits
        .parse()
        .ok()
        .filter(|status| is_status && (200..600).contains(status))?;
    Some((status, reason.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<(usize, Head)>, Malformed> {
        Collector::default().add(text.as_bytes())
    }

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        for text in [
            "Content-Type: a/b\nStatus: 404 No\nContent-Length: 4\nConnection: x\n\nbody",
            "Content-Type: a/b\r\nStatus: 404 No\r\nContent-Length: 4\r\nConnection: x\r\n\r\nbody",
        ] {
            let (behind, head) = read(text).expect(text).expect("whole");
            assert_eq!((behind, head.status, head.reason.as_str()), (4, 404, "No"));
            assert_eq!(head.fields, [("Content-Type".to_string(), b"a/b".to_vec())]);
            assert_eq!(head.length, Some(4));
        }
        assert_eq!(read("A: b\n"), Ok(None));
        let status = |text: &str| read(text).expect(text).expect("whole").1.status;
        assert_eq!(status("Content-Type: a\n\n"), 200);
        assert_eq!(status("Location: /a\n\n"), 302);
        assert_eq!(status("Location: /a\nStatus: 201\n\n"), 201);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for text in [
            "\n",
            "no field\n\n",
            "A: b\n c\n\n",
            "A b: c\n\n",
            "A: b\0\n\n",
            "A: b\rX: c\n\n",
            "Status: 20\n\n",
            "Status: 100\n\n",
            "Status: abc\n\n",
            "Content-Length: 1\nContent-Length: 1\n\n",
            "Content-Length: -1\n\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert!(read(&"a".repeat(MAX_HEAD + 1)).is_err());
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(text in "([A-Za-z-]{1,9}: ?[ -~]{0,9}\r?\n){0,4}\r?\n?[a-z\n]{0,9}", cut in any::<prop::sample::Index>()) {
            let whole = read(&text);
            let cut = cut.index(text.len() + 1);
            let mut collector = Collector::default();
            let found = match collector.add(&text.as_bytes()[..cut]) {
                Ok(None) => collector.add(&text.as_bytes()[cut..]),
                Ok(Some((behind, head))) => Ok(Some((behind + text.len() - cut, head))),
                error => error,
            };
            prop_assert_eq!(found, whole);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Collector::default().add(&bytes);
        }
    }
}
