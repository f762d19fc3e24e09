//! The page's data as JSON, with its texts made printable.
//!
//! The page draws only these texts. Characters that hide or reorder text are therefore escaped here, and
//! not at each place of the script that makes an element from a text.

use std::io::{self, Write};

use kit_console::printable;
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

pub fn to_string(data: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    data.serialize(&mut Serializer::with_formatter(&mut bytes, Shown))?;
    String::from_utf8(bytes).map_err(|error| serde_json::Error::io(io::Error::other(error)))
}

struct Shown;

impl Formatter for Shown {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        // A fragment contains no backslash of its own.
        to.write_all(printable(text).replace('\\', "\\\\").as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let control = match escape {
            CharEscape::AsciiControl(byte) => char::from(byte),
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::CarriageReturn => '\r',
            // Quotes are text, and a page has line breaks and indentation.
            other => return CompactFormatter.write_char_escape(to, other),
        };
        self.write_string_fragment(to, &String::from(control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        let json = to_string(&[text]).expect("it is JSON");
        let read: Vec<String> = serde_json::from_str(&json).expect("it is JSON");
        read.concat()
    }

    #[test]
    fn what_hides_or_reorders_text_is_shown() {
        assert_eq!(shown("a\u{202e}b\x1b\u{8}\r"), "a\\u{202e}b\\x1b\\x08\\r");
        assert_eq!(
            shown("\"two\nlines\" \\ \u{e9}\t"),
            "\"two\nlines\" \\ \u{e9}\t"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_shown_as_it_is_in_a_terminal(text in any::<String>()) {
            let lines = shown(&text).replace('\n', "\\n").replace('\t', "\\t");
            prop_assert_eq!(lines, printable(&text));
        }
    }
}
