// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profile shows of a frame.

use std::borrow::Cow;

use debox_model::frame::{Frame, Kind};

/// A function and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown<'a> {
    /// A function counts as one wherever in it a call was made.
    pub function: Cow<'a, str>,
    /// The source file, if its line is known; else the program or library.
    pub file: Option<&'a str>,
    pub line: u32,
}

pub fn show(frame: &Frame) -> Shown<'_> {
    let (function, file, line) = match (frame.kind, frame.place.as_deref(), frame.source()) {
        (Kind::Made, ..) => (Cow::from(&frame.function), Some("jit"), 0),
        (_, _, Some((file, line))) => (Cow::from(&frame.function), Some(file), line),
        (_, Some(module), None) => (Cow::from(&frame.function), Some(module), 0),
        // Without a name, the offset identifies the place.
        (_, None, _) => (Cow::from(frame.to_string()), None, 0),
    };
    Shown {
        function,
        file,
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_apart() {
        for (text, function, file, line) in [
            (
                "read_block (store.c:210)",
                "read_block",
                Some("store.c"),
                210,
            ),
            ("help (inlined) (store.c:7)", "help", Some("store.c"), 7),
            ("main+0x10 (program)", "main", Some("program"), 0),
            ("+0x10 (program)", "+0x10", Some("program"), 0),
            ("do_wait", "do_wait", None, 0),
            ("spin (inlined)", "spin (inlined)", None, 0),
            ("0x7f12 (libc.so.6)", "0x7f12", Some("libc.so.6"), 0),
            (
                "a::b(int) const (/x y/a.cc:3)",
                "a::b(int) const",
                Some("/x y/a.cc"),
                3,
            ),
            ("a (b:99999999999)", "a", Some("b:99999999999"), 0),
            (
                "(further frames: 64 are kept)",
                "(further frames: 64 are kept)",
                None,
                0,
            ),
            ("()", "()", None, 0),
            ("x ()", "x ()", None, 0),
            (" (a)", " (a)", None, 0),
            ("", "", None, 0),
        ] {
            let function = Cow::from(function);
            let expected = Shown {
                function,
                file,
                line,
            };
            assert_eq!(show(&Frame::from(text)), expected, "{text}");
        }
    }
}
