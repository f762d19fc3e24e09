//! Any bytes on their way to a terminal.
#![no_main]

use std::io::Write;

use kit_console::{printable, Allowed, Clean};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let allowed = match how & 3 {
        0 => Allowed::Text,
        1 => Allowed::Colours,
        2 => Allowed::Json,
        _ => return field(&String::from_utf8_lossy(bytes)),
    };
    let (first, second) = bytes.split_at(usize::from(how >> 2).min(bytes.len()));
    let whole = clean(&[bytes], allowed);
    assert_eq!(clean(&[first, second], allowed), whole);
    match allowed {
        Allowed::Colours => assert!(whole.split('\x1b').skip(1).all(begins_with_a_colour)),
        Allowed::Json => same_to_a_machine(bytes, &whole),
        _ => assert!(steers_nothing(&whole)),
    }
});

fn clean(pieces: &[&[u8]], allowed: Allowed) -> String {
    let mut writer = Clean::new(Vec::new(), allowed);
    for piece in pieces {
        writer.write_all(piece).expect("memory takes it");
    }
    let bytes = writer.finish().expect("memory takes it");
    String::from_utf8(bytes).expect("what is written is text")
}

fn field(text: &str) {
    let shown = printable(text);
    assert!(steers_nothing(&shown) && !shown.contains('\n'));
    assert_eq!(printable(&shown), shown);
}

/// By Unicode's properties and not by the list of the code under test: controls (Cc), and
/// Bidi_Control (UAX 44).
fn steers_nothing(text: &str) -> bool {
    let is_bidi_control = |character| {
        matches!(character, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
    };
    let mut characters = text.chars();
    characters.all(|shown| shown == '\n' || !shown.is_control() && !is_bidi_control(shown))
}

fn begins_with_a_colour(after_escape: &str) -> bool {
    let Some((digits, _)) = after_escape
        .strip_prefix('[')
        .and_then(|rest| rest.split_once('m'))
    else {
        return false;
    };
    digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
}

fn same_to_a_machine(bytes: &[u8], shown: &str) {
    // The only white space in what DeBox writes is spaces and line feeds; other controls are escaped wherever they are.
    if bytes.iter().any(|byte| matches!(byte, b'\t' | b'\r')) {
        return;
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(shown).ok(),
        Some(value)
    );
}
