// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where the body of a message ends, and what of the received bytes is its content (RFC 9112, 7.1).

use std::ops::Range;

use super::fields::Framing;
use super::method::is_token;

/// A line with a chunk's size, its extensions included, and all lines of a trailer.
const MAX_LINE: usize = 1024;
const MAX_TRAILER: usize = 8192;

/// Follows a body to its end.
#[derive(Debug)]
pub enum Body {
    Length(u64),
    Chunked(Chunked),
}

#[derive(Debug, Default)]
pub struct Chunked {
    place: Place,
    line: Vec<u8>,
    trailer: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Place {
    #[default]
    Size,
    Data(u64),
    /// The line end behind the data.
    DataEnd,
    Trailer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// All that was given belongs to the body, which goes on.
    All,
    /// The body ended so many bytes in.
    Ended(usize),
    /// It is not a body as the standard has it.
    Wrong,
}

impl Body {
    pub fn new(framing: Framing) -> Option<Body> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Body::Length(length)),
            Framing::Chunked => Some(Body::Chunked(Chunked::default())),
        }
    }

    /// Follows the body, and discards its content.
    pub fn pass(&mut self, received: &[u8]) -> Passed {
        self.read(received, |_| {})
    }

    /// Follows the body, and hands over its content.
    pub fn read(&mut self, received: &[u8], mut content: impl FnMut(&[u8])) -> Passed {
        match self {
            Body::Length(left) => {
                let here = (*left).min(received.len() as u64);
                *left -= here;
                content(&received[..here as usize]);
                match *left {
                    0 => Passed::Ended(here as usize),
                    _ => Passed::All,
                }
            }
            Body::Chunked(chunked) => {
                let mut at = 0;
                while at < received.len() {
                    match chunked.next(&received[at..]) {
                        Piece::Content(part) => {
                            content(&received[at + part.start..at + part.end]);
                            at += part.end;
                        }
                        Piece::Other => return Passed::All,
                        Piece::Ended(length) => return Passed::Ended(at + length),
                        Piece::Wrong => return Passed::Wrong,
                    }
                }
                Passed::All
            }
        }
    }
}

/// What received bytes of a chunked body begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The end of this range is where the next piece begins.
    Content(Range<usize>),
    /// All of them are lines between contents.
    Other,
    /// The body ended so many bytes in.
    Ended(usize),
    Wrong,
}

impl Chunked {
    pub fn next(&mut self, received: &[u8]) -> Piece {
        let mut at = 0;
        while at < received.len() {
            if let Place::Data(left) = self.place {
                let here = left.min((received.len() - at) as u64);
                self.place = match left - here {
                    0 => Place::DataEnd,
                    left => Place::Data(left),
                };
                return Piece::Content(at..at + here as usize);
            }
            let byte = received[at];
            at += 1;
            self.line.push(byte);
            if byte != b'\n' {
                if self.line.len() > MAX_LINE {
                    return Piece::Wrong;
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let Some(line) = line.strip_suffix(b"\r\n") else {
                return Piece::Wrong;
            };
            match self.line_end(line) {
                None => return Piece::Wrong,
                Some(true) => return Piece::Ended(at),
                Some(false) => {}
            }
        }
        Piece::Other
    }

    /// Whether the body ends with this line; `None`: it is not valid.
    fn line_end(&mut self, line: &[u8]) -> Option<bool> {
        self.place = match self.place {
            Place::Size => match size(line)? {
                0 => Place::Trailer,
                size => Place::Data(size),
            },
            Place::DataEnd if line.is_empty() => Place::Size,
            Place::Trailer if line.is_empty() => return Some(true),
            Place::Trailer => {
                self.trailer += line.len() + 2;
                if self.trailer > MAX_TRAILER || !is_field(line) {
                    return None;
                }
                Place::Trailer
            }
            Place::DataEnd | Place::Data(_) => return None,
        };
        Some(false)
    }
}

/// Parses a chunk's size: hexadecimal digits, and extensions, which are checked and ignored.
fn size(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    let end = line.find(|c: char| !c.is_ascii_hexdigit());
    let (digits, extensions) = line.split_at(end.unwrap_or(line.len()));
    if digits.is_empty() || digits.len() > 15 || !are_extensions(extensions) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// `*( BWS ";" BWS name [ BWS "=" BWS value ] )` (RFC 9112, 7.1.1).
fn are_extensions(mut rest: &str) -> bool {
    while !rest.is_empty() {
        let Some(one) = rest.trim_start_matches([' ', '\t']).strip_prefix(';') else {
            return false;
        };
        let Some(after) = token(one.trim_start_matches([' ', '\t'])) else {
            return false;
        };
        rest = after;
        let Some(value) = rest.trim_start_matches([' ', '\t']).strip_prefix('=') else {
            continue;
        };
        let value = value.trim_start_matches([' ', '\t']);
        let after = match value.strip_prefix('"') {
            Some(inside) => quoted(inside),
            None => token(value),
        };
        let Some(after) = after else {
            return false;
        };
        rest = after;
    }
    true
}

/// What follows the token that the text begins with.
fn token(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !u8::try_from(c).is_ok_and(is_token));
    match end.unwrap_or(text.len()) {
        0 => None,
        end => Some(&text[end..]),
    }
}

/// What follows a quoted string. `inside`: without its first quote.
fn quoted(inside: &str) -> Option<&str> {
    let mut is_escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if c.is_ascii_control() && c != '\t' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(&inside[at + 1..]),
            _ => {}
        }
    }
    None
}

/// Whether a line of a trailer is a field.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return false;
    };
    let (name, value) = line.split_at(colon);
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    !name.is_empty() && name.iter().all(|byte| is_token(*byte)) && !value.iter().any(is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunked() -> Body {
        Body::Chunked(Chunked::default())
    }

    fn pass(text: &[u8]) -> Passed {
        chunked().pass(text)
    }

    #[test]
    fn the_content_is_what_the_chunks_have() {
        let mut content = Vec::new();
        let text = b"5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\nmore";
        let passed = chunked().read(text, |part| content.extend_from_slice(part));
        assert_eq!(passed, Passed::Ended(text.len() - 4));
        assert_eq!(content, b"hello!");
    }

    #[test]
    fn a_body_ends_behind_its_trailer() {
        let text =
            b"5\r\nhello\r\nA ;x=y; z ; w = \"a\\\"b\"\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET";
        assert_eq!(pass(text), Passed::Ended(text.len() - 3));
        assert_eq!(pass(b"0\r\n\r\n"), Passed::Ended(5));
        assert_eq!(pass(b"0\r\n"), Passed::All);
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for wrong in [
            &b"\r\n"[..],
            b"x\r\n",
            b"5\nhello",
            b"5\r\nhelloX\r\n",
            b"-1\r\n",
            b"0x5\r\n",
            b"5 5\r\n",
            b"ffffffffffffffff\r\n",
            b"0\r\nno field\r\n",
            b"5;a\rb\r\n",
            b"5 \r\n",
            b"5;\r\n",
            b"5;[\r\n",
            b"5;a=\r\n",
            b"5;a=\"b\r\n",
            b"5;a=\"\x01\"\r\n",
            b"5;a=\"b\rc\"\r\n",
            b"5\x0b;a\r\n",
            b"5\r;a\r\n",
            b" 5\r\n",
            b"1_0\r\n",
            b"0\r\nX : y\r\n",
            b"0\r\n: y\r\n",
            b"0\r\nX: \0\r\n",
        ] {
            assert_eq!(
                pass(wrong),
                Passed::Wrong,
                "{:?}",
                String::from_utf8_lossy(wrong)
            );
        }
        assert_eq!(pass(&[b'1'; 2000]), Passed::Wrong);
    }

    #[test]
    fn a_length_is_counted_down() {
        let mut body = Body::new(Framing::Length(5)).expect("a body");
        assert_eq!(body.pass(b"abc"), Passed::All);
        assert_eq!(body.pass(b"deGET"), Passed::Ended(2));
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), Just(b';'), any::<u8>()], 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = pass(&bytes);
            let cut = cut.index(bytes.len() + 1);
            let mut chunked = chunked();
            let first = chunked.pass(&bytes[..cut]);
            let last = match first {
                Passed::All => match chunked.pass(&bytes[cut..]) {
                    Passed::Ended(at) => Passed::Ended(cut + at),
                    other => other,
                },
                other => other,
            };
            prop_assert_eq!(last, whole);
        }
    }
}
