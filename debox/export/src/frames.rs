//! Splits a stack's text into its frames.

/// A function and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub function: &'a str,
    /// The source file, if its line is known; else the program or library.
    pub file: Option<&'a str>,
    pub line: u32,
}

/// The frames in the order of the text: outermost first.
pub fn split(stack: &str) -> impl DoubleEndedIterator<Item = &str> {
    stack.split(';').filter(|frame| !frame.is_empty())
}

/// Parses `read_block (store.c:210)`, `help (inlined) (store.c:7)`, `main+0x10 (program)` and
/// `do_wait`.
pub fn parse(text: &str) -> Frame<'_> {
    let whole = Frame {
        function: text,
        file: None,
        line: 0,
    };
    let Some((function, place)) = text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once(" ("))
    else {
        return whole;
    };
    let function = function.strip_suffix(" (inlined)").unwrap_or(function);
    // A remark such as `(further frames: 64 are kept)`, or the end of C++'s `operator() (int)`, is
    // not a place.
    if function.is_empty() || place.is_empty() || place == "inlined" {
        return whole;
    }
    let known = place
        .rsplit_once(':')
        .and_then(|(file, line)| Some((file, line.parse().ok()?)));
    match known {
        Some((file, line)) => Frame {
            function,
            file: Some(file),
            line,
        },
        None => Frame {
            function: without_offset(function),
            file: Some(place),
            line: 0,
        },
    }
}

/// Removes the offset: a function counts as one wherever in it a call was made.
fn without_offset(function: &str) -> &str {
    match function.rsplit_once("+0x") {
        Some((name, digits))
            if !name.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => function,
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
            let expected = Frame {
                function,
                file,
                line,
            };
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
