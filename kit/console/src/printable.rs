//! Makes one line of a text from outside.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with escapes for everything that could control a terminal, hide or reorder what is shown, or
/// break the line: `\n`, `\x1b`, `\u{202e}`. Other text stays as it is, in any script.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_printable(character) {
            true => shown.push(character),
            false => push_escaped(&mut shown, character),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is shown as itself, with no other effect.
pub fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // C0 and C1 controls, of which U+009B begins an escape sequence, too.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => false,
        // Invisible: the soft hyphen, the Mongolian vowel separator.
        '\u{ad}' | '\u{180e}' => false,
        // Direction marks, embeddings, overrides and isolates.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            false
        }
        // Zero-width characters and invisible operators.
        '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}' => false,
        // Line and paragraph separators.
        '\u{2028}' | '\u{2029}' => false,
        // Interlinear annotations and noncharacters: XML cannot represent these.
        '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' => false,
        // Tags, and variation selectors.
        '\u{e0000}'..='\u{e0fff}' => false,
        _ => true,
    }
}

/// Appends the character's escape.
pub fn push_escaped(to: &mut String, character: char) {
    let written = match character {
        '\n' => to.write_str("\\n"),
        '\r' => to.write_str("\\r"),
        '\t' => to.write_str("\\t"),
        '\0'..='\u{7f}' => write!(to, "\\x{:02x}", u32::from(character)),
        _ => write!(to, "\\u{{{:x}}}", u32::from(character)),
    };
    debug_assert!(written.is_ok(), "a string takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_is_shown() {
        for (text, shown) in [
            ("\x1b]0;pwned\x07", "\\x1b]0;pwned\\x07"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("\x7f\u{9b}2J\0", "\\x7f\\u{9b}2J\\x00"),
            ("abc\u{202e}gpj.exe", "abc\\u{202e}gpj.exe"),
            ("\u{200b}\u{2066}\u{feff}", "\\u{200b}\\u{2066}\\u{feff}"),
            ("\u{61c}\u{e0041}", "\\u{61c}\\u{e0041}"),
            ("\u{2028}\u{2029}\u{ffff}", "\\u{2028}\\u{2029}\\u{ffff}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn other_text_stays_in_any_script() {
        for text in [
            "",
            "plain ~",
            "Größe …",
            "データ",
            "ملف",
            "קובץ",
            "файл",
            "🦀 <&>\"\\",
        ] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    proptest! {
        #[test]
        fn nothing_shown_has_a_control_and_it_is_shown_once(text in any::<String>()) {
            let shown = printable(&text).into_owned();
            prop_assert!(shown.chars().all(is_printable));
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert_eq!(printable(&shown), shown.as_str());
            if text.chars().all(is_printable) {
                prop_assert_eq!(shown, text);
            }
        }

        /// Random text rarely has control characters.
        #[test]
        fn of_controls_none_is_left(text in "[\\x00-\\x1f\\x7f-\\u{9f}\\u{200b}-\\u{200f}\\u{202a}-\\u{202e}\\u{2066}-\\u{2069}a]*") {
            prop_assert!(printable(&text).chars().all(is_printable));
        }
    }
}
