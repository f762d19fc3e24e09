//! A writer that escapes everything that could control a terminal.

use std::io::{self, Write};

use crate::printable::{is_printable, push_escaped};

/// What passes in addition to printable text and line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Nothing.
    Text,
    /// Colours and similar attributes: `ESC [ digits m`. Fields are cleaned before they are coloured.
    Colours,
    /// Nothing, in JSON: control characters are written as JSON's own escapes, so a parser reads
    /// exactly the original text.
    Json,
    /// Anything: for formats that are not meant to be read.
    Anything,
}

/// Longer than any colour's sequence.
const SEQUENCE_MAX: usize = 32;

/// Escapes what is written to it.
#[derive(Debug)]
pub struct Clean<W: Write> {
    to: W,
    allowed: Allowed,
    /// An incomplete character or sequence that has not been written yet.
    begun: Vec<u8>,
}

impl<W: Write> Clean<W> {
    pub fn new(to: W, allowed: Allowed) -> Clean<W> {
        Clean {
            to,
            allowed,
            begun: Vec::new(),
        }
    }

    /// Writes an incomplete character or sequence, if there is one.
    pub fn finish(mut self) -> io::Result<W> {
        let rest = std::mem::take(&mut self.begun);
        let mut shown = String::new();
        let mut left = rest.as_slice();
        while let Some(step) = next(left, self.allowed, true) {
            push(&mut shown, left, &step, self.allowed);
            left = &left[step.length..];
        }
        self.to.write_all(shown.as_bytes())?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = || bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
        if self.allowed == Allowed::Anything || self.begun.is_empty() && is_plain() {
            return self.to.write(bytes);
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut shown = String::with_capacity(all.len() + 16);
        let mut left = all.as_slice();
        while let Some(step) = next(left, self.allowed, false) {
            push(&mut shown, left, &step, self.allowed);
            left = &left[step.length..];
        }
        self.begun = left.to_vec();
        self.to.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The first element of some bytes, and its length.
struct Step {
    length: usize,
    what: What,
}

enum What {
    Passes,
    Escaped(char),
    /// A byte that is not valid text.
    NoText,
}

/// `None`: the input is empty or, unless this is the end, has only the beginning of an element.
fn next(bytes: &[u8], allowed: Allowed, is_end: bool) -> Option<Step> {
    let first = *bytes.first()?;
    if first == 0x1b && allowed == Allowed::Colours {
        match sequence(bytes) {
            Sequence::Colour(length) => {
                let what = What::Passes;
                return Some(Step { length, what });
            }
            Sequence::Begun if !is_end => return None,
            _ => {}
        }
    }
    let window = &bytes[..bytes.len().min(4)];
    let character = match std::str::from_utf8(window) {
        Ok(text) => text.chars().next(),
        Err(error) if error.valid_up_to() > 0 => {
            let valid = std::str::from_utf8(&window[..error.valid_up_to()]);
            valid.ok().and_then(|text| text.chars().next())
        }
        Err(error) if error.error_len().is_none() && !is_end => return None,
        Err(_) => None,
    };
    Some(match character {
        Some(character) => Step {
            length: character.len_utf8(),
            what: match character == '\n' || is_printable(character) {
                true => What::Passes,
                false => What::Escaped(character),
            },
        },
        None => Step {
            length: 1,
            what: What::NoText,
        },
    })
}

enum Sequence {
    Colour(usize),
    Begun,
    Other,
}

fn sequence(bytes: &[u8]) -> Sequence {
    for (at, byte) in bytes.iter().enumerate().take(SEQUENCE_MAX) {
        match (at, byte) {
            (0, 0x1b) | (1, b'[') => {}
            (2.., b'0'..=b'9' | b';' | b':') => {}
            (2.., b'm') => return Sequence::Colour(at + 1),
            _ => return Sequence::Other,
        }
    }
    match bytes.len() < SEQUENCE_MAX {
        true => Sequence::Begun,
        false => Sequence::Other,
    }
}

fn push(shown: &mut String, bytes: &[u8], step: &Step, allowed: Allowed) {
    let bytes = &bytes[..step.length];
    match step.what {
        What::Passes => shown.push_str(&String::from_utf8_lossy(bytes)),
        What::Escaped(character) if allowed == Allowed::Json => {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
        What::Escaped(character) => push_escaped(shown, character),
        What::NoText => bytes
            .iter()
            .for_each(|byte| shown.push_str(&format!("\\x{byte:02x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clean(pieces: &[&[u8]], allowed: Allowed) -> String {
        let mut writer = Clean::new(Vec::new(), allowed);
        for piece in pieces {
            writer.write_all(piece).expect("memory takes it");
        }
        let bytes = writer.finish().expect("memory takes it");
        String::from_utf8(bytes).expect("what is written is text")
    }

    #[test]
    fn lines_stay_and_controls_do_not() {
        for (given, shown) in [
            (&b"a\nb\n"[..], "a\nb\n"),
            (b"\x1b[31mred\x1b[m\r\n", "\\x1b[31mred\\x1b[m\\r\n"),
            (b"\xff\xfe caf\xc3\xa9 \xc3", "\\xff\\xfe caf\u{e9} \\xc3"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
        ] {
            assert_eq!(clean(&[given], Allowed::Text), shown);
        }
    }

    #[test]
    fn of_sequences_only_colours_pass() {
        let colour: &[u8] = b"\x1b[1;38;5;9mred\x1b[0m";
        assert_eq!(clean(&[colour], Allowed::Colours).as_bytes(), colour);
        for (given, shown) in [
            (&b"\x1b[2J"[..], "\\x1b[2J"),
            (b"\x1b]0;x\x07", "\\x1b]0;x\\x07"),
            (b"\x1b[31", "\\x1b[31"),
            (b"\x1b", "\\x1b"),
        ] {
            assert_eq!(clean(&[given], Allowed::Colours), shown);
        }
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"m"].concat();
        assert!(!clean(&[&long], Allowed::Colours).contains('\x1b'));
    }

    #[test]
    fn json_is_the_same_to_a_machine() {
        let text = "{\"a\":\"\u{202e}\u{9b}\u{7f}\u{e0041}\u{e9}\"}\n";
        let shown = clean(&[text.as_bytes()], Allowed::Json);
        assert_eq!(
            shown,
            "{\"a\":\"\\u202e\\u009b\\u007f\\udb40\\udc41\u{e9}\"}\n"
        );
    }

    proptest! {
        /// Regardless of how the bytes are divided into writes.
        #[test]
        fn any_bytes_become_text_without_controls(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..8),
            colours in any::<bool>(),
        ) {
            let allowed = if colours { Allowed::Colours } else { Allowed::Text };
            let whole = clean(&[&bytes], allowed);
            prop_assert!(colours || whole.chars().all(|c| c == '\n' || is_printable(c)));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(clean(&pieces, allowed), whole);
        }

        #[test]
        fn text_is_shown_as_fields_are(text in any::<String>()) {
            let shown = clean(&[text.as_bytes()], Allowed::Text);
            prop_assert_eq!(shown.replace('\n', "\\n"), crate::printable(&text));
        }
    }
}
