// SPDX-License-Identifier: MIT OR Apache-2.0
//! A frame of a stack: a function, and where in it.
//!
//! Stacks are text in recordings, in reports as JSON and on a terminal. This module is the only one that knows that
//! text, in both directions.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A frame of the kernel's or of a program's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Frame {
    /// The function. Without a name: in a program, the file that the code is in (then there is an offset and no
    /// `place`); in the kernel, or if nothing is mapped there, the address in hexadecimal.
    pub function: String,
    /// From the function's entry, or in the file. Recordings leave it out where there is a line.
    pub offset: Option<u64>,
    pub kind: Kind,
    /// `file.c:123` where there is debug information; otherwise, for a function of a program, its program or library.
    pub place: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Function,
    /// Inlined into the next frame.
    Inlined,
    /// Code that was made at run time.
    Made,
    /// No frame, but why frames are missing, or any other text.
    #[default]
    Remark,
}

/// Before the offset.
const OFFSET: &str = "+0x";
const INLINED: &str = " (inlined)";
const MADE: &str = " (jit)";

impl Frame {
    pub fn remark(text: impl Into<String>) -> Frame {
        Frame {
            function: text.into(),
            ..Frame::default()
        }
    }

    /// A function without a place.
    pub fn function(function: impl Into<String>, offset: u64) -> Frame {
        Frame {
            function: function.into(),
            offset: Some(offset),
            kind: Kind::Function,
            place: None,
        }
    }

    /// Code at an address of which nothing else is known.
    pub fn address(address: u64) -> Frame {
        Frame {
            function: format!("{address:#x}"),
            offset: None,
            kind: Kind::Function,
            place: None,
        }
    }

    /// The same wherever in the function it is.
    pub fn without_offset(&self) -> Frame {
        Frame {
            offset: None,
            ..self.clone()
        }
    }

    /// The source file and its line, where they are known.
    pub fn source(&self) -> Option<(&str, u32)> {
        let (file, line) = self.place.as_deref()?.rsplit_once(':')?;
        Some((file, line.parse().ok()?))
    }

    /// The file of a program's code that has no name for the function.
    pub fn nameless_in(&self) -> Option<&str> {
        let is_nameless =
            self.kind == Kind::Function && self.place.is_none() && self.offset.is_some();
        is_nameless.then_some(&self.function)
    }

    /// Reads a frame's text, without checking that this is the frame's text.
    fn read(text: &str) -> Frame {
        if let Some(name) = text.strip_suffix(MADE) {
            let (function, offset) = split_offset(name);
            return Frame {
                function: function.to_string(),
                offset,
                kind: Kind::Made,
                place: None,
            };
        }
        let parts = text
            .strip_suffix(')')
            .and_then(|rest| rest.rsplit_once(" ("));
        // The end of a remark, or of the name of C++'s `operator() (int)`, is not a place.
        let is_place = |(name, place): &(&str, &str)| {
            !name.is_empty() && !place.is_empty() && *place != "inlined"
        };
        let (name, place) = match parts.filter(is_place) {
            Some((name, place)) => (name, Some(place.to_string())),
            None => (text, None),
        };
        if let Some(function) = name.strip_suffix(INLINED) {
            return Frame {
                function: function.to_string(),
                offset: None,
                kind: Kind::Inlined,
                place,
            };
        }
        let (function, offset) = split_offset(name);
        let is_remark = offset.is_none() && place.is_none() && function.starts_with('(');
        Frame {
            function: function.to_string(),
            offset,
            kind: match is_remark || function.is_empty() {
                true => Kind::Remark,
                false => Kind::Function,
            },
            place,
        }
    }
}

fn split_offset(name: &str) -> (&str, Option<u64>) {
    let parts = name.rsplit_once(OFFSET);
    let split = parts.filter(|(function, _)| !function.is_empty());
    let split = split.and_then(|(function, digits)| {
        let offset = u64::from_str_radix(digits, 16).ok()?;
        Some((function, Some(offset)))
    });
    split.unwrap_or((name, None))
}

/// `read_block+0x52 (store.c:210)`, `help (inlined) (store.c:7)`, `main+0x10 (program)`, `program+0x4f` without a name,
/// `JS:^answer app.js:2:23+0x333 (jit)`, and in the kernel `do_wait+0x4f`.
impl fmt::Display for Frame {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.function)?;
        if let Some(offset) = self.offset {
            write!(to, "+{offset:#x}")?;
        }
        match self.kind {
            Kind::Inlined => to.write_str(INLINED)?,
            Kind::Made => to.write_str(MADE)?,
            Kind::Function | Kind::Remark => {}
        }
        match &self.place {
            Some(place) => write!(to, " ({place})"),
            None => Ok(()),
        }
    }
}

/// Any text is a frame, and no text changes: what is no function becomes a remark.
impl From<&str> for Frame {
    fn from(text: &str) -> Frame {
        let frame = Frame::read(text);
        match frame.to_string() == text {
            true => frame,
            false => Frame::remark(text),
        }
    }
}

impl From<String> for Frame {
    fn from(text: String) -> Frame {
        Frame::from(text.as_str())
    }
}

impl Serialize for Frame {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The text of a stack in recordings, made of frames that are given innermost first: outermost first, and without
/// offsets where there is a function or a line, so that equal places are equal frames.
pub fn fold(frames: &[Frame], of_kernel: bool) -> String {
    let mut folded = String::new();
    for frame in frames.iter().rev() {
        if !folded.is_empty() {
            folded.push(SEPARATOR);
        }
        let is_known = match &frame.place {
            Some(place) => place.contains(':'),
            None => of_kernel && frame.kind == Kind::Function,
        };
        let text = match is_known {
            true => frame.without_offset().to_string(),
            false => frame.to_string(),
        };
        folded.push_str(&text.replace(SEPARATOR, ":"));
    }
    folded
}

/// Between the frames of a stack's text.
const SEPARATOR: char = ';';

/// The texts of the frames in a stack's text, in its order: outermost first.
pub fn texts_of(folded: &str) -> impl DoubleEndedIterator<Item = &str> {
    folded.split(SEPARATOR).filter(|text| !text.is_empty())
}

/// The frames of a stack's text, innermost first.
pub fn unfold(folded: &str) -> Vec<Frame> {
    texts_of(folded).rev().map(Frame::from).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_frames_and_frames_are_texts() {
        for (text, function, offset, kind, place) in [
            (
                "read_block+0x52 (store.c:210)",
                "read_block",
                Some(0x52),
                Kind::Function,
                Some("store.c:210"),
            ),
            (
                "read_block (store.c:210)",
                "read_block",
                None,
                Kind::Function,
                Some("store.c:210"),
            ),
            (
                "help (inlined) (store.c:7)",
                "help",
                None,
                Kind::Inlined,
                Some("store.c:7"),
            ),
            ("spin (inlined)", "spin", None, Kind::Inlined, None),
            (
                "main+0x10 (program)",
                "main",
                Some(0x10),
                Kind::Function,
                Some("program"),
            ),
            (
                "libz.so.1+0x4210",
                "libz.so.1",
                Some(0x4210),
                Kind::Function,
                None,
            ),
            (
                "JS:^answer /app/server.js:2:23+0x3 (jit)",
                "JS:^answer /app/server.js:2:23",
                Some(3),
                Kind::Made,
                None,
            ),
            (
                "operator+(A, B)+0x4 (a.cc:2)",
                "operator+(A, B)",
                Some(4),
                Kind::Function,
                Some("a.cc:2"),
            ),
            (
                "call(void (*)(int))+0x4 (a.cc:2)",
                "call(void (*)(int))",
                Some(4),
                Kind::Function,
                Some("a.cc:2"),
            ),
            (
                "(anonymous namespace)::f+0x1 (a.cc:3)",
                "(anonymous namespace)::f",
                Some(1),
                Kind::Function,
                Some("a.cc:3"),
            ),
            ("do_wait", "do_wait", None, Kind::Function, None),
            (
                "0x7f0ddec3c409",
                "0x7f0ddec3c409",
                None,
                Kind::Function,
                None,
            ),
            (
                "+0x10 (program)",
                "+0x10",
                None,
                Kind::Function,
                Some("program"),
            ),
            (
                "(further frames: 64 are kept)",
                "(further frames: 64 are kept)",
                None,
                Kind::Remark,
                None,
            ),
            ("", "", None, Kind::Remark, None),
        ] {
            let place = place.map(String::from);
            let function = function.to_string();
            let frame = Frame {
                function,
                offset,
                kind,
                place,
            };
            assert_eq!(Frame::from(text), frame);
            assert_eq!(frame.to_string(), text);
        }
    }

    #[test]
    fn frames_are_strings_in_json() {
        let frame = Frame::from("read_block+0x52 (store.c:210)");
        let json = serde_json::to_string(&frame).expect("JSON");
        assert_eq!(json, "\"read_block+0x52 (store.c:210)\"");
        let read: Frame = serde_json::from_str(&json).expect("a frame");
        assert_eq!(read, frame);
    }

    #[test]
    fn stacks_are_folded_outermost_first() {
        let frames = [
            "read_block+0x52 (store.c:210)",
            "help (inlined) (store.c:7)",
            "call(void (*)(int))+0x4 (a.cc:2)",
            "main+0x10 (program)",
            "stripped+0x4f",
            "(further frames: 64 are kept)",
        ]
        .map(Frame::from);
        let folded = "(further frames: 64 are kept);stripped+0x4f;main+0x10 (program);\
                      call(void (*)(int)) (a.cc:2);help (inlined) (store.c:7);read_block (store.c:210)";
        assert_eq!(fold(&frames, false), folded);
        let kernel = ["do_wait+0x4f", "__do_sys_wait4+0x1 (exit.c:7)"].map(Frame::from);
        assert_eq!(fold(&kernel, true), "__do_sys_wait4 (exit.c:7);do_wait");
        let unfolded = unfold("main (a.c:1);do_wait");
        assert_eq!(unfolded, ["do_wait", "main (a.c:1)"].map(Frame::from));
        assert_eq!(unfold(""), []);
    }

    proptest! {
        #[test]
        fn no_text_changes(text in any::<String>()) {
            prop_assert_eq!(Frame::from(text.as_str()).to_string(), text);
        }

        #[test]
        fn no_text_that_looks_like_a_frame_changes(
            text in "[a(]{0,2}(\\+0x)?[0-9a-f]{0,18}( \\(inlined\\)| \\(jit\\))?( \\([a:0-9]{0,3}\\))?",
        ) {
            prop_assert_eq!(Frame::from(text.as_str()).to_string(), text);
        }
    }
}
