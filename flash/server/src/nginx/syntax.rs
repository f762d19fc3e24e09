// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx's configuration language: words, and directives that end with a semicolon or a block.
//!
//! What a word is, and which of its backslashes stay, decides what a path or a pattern means, so nginx's own rules are
//! followed to the letter and what nginx refuses is refused.

use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// Blocks in blocks. nginx needs five: `http`, `server`, `location`, `location`, `if`.
const MOST_DEPTH: usize = 16;

/// Where something is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub file: Rc<Path>,
    pub line: usize,
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file.display(), self.line)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    pub name: String,
    pub words: Vec<String>,
    pub block: Option<Vec<Directive>>,
    pub at: At,
}

impl Directive {
    /// Its words, as far as there are any.
    pub fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub fn inside(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// As it was written, without its block.
    pub fn text(&self) -> String {
        let words: Vec<&str> = std::iter::once(self.name.as_str())
            .chain(self.words.iter().map(String::as_str))
            .collect();
        words.join(" ")
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub line: usize,
    pub what: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
}

/// # Errors
///
/// nginx would not read it, either; the error names the line.
pub fn parse(text: &str, file: &Rc<Path>) -> Result<Vec<Directive>, Unreadable> {
    let mut reader = Reader {
        rest: text,
        line: 1,
    };
    let mut blocks: Vec<Vec<Directive>> = vec![Vec::new()];
    let mut owners: Vec<Directive> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut line = 1;
    while let Some(token) = reader.next()? {
        let wrong = |line: usize, what: &str| {
            let what = what.to_string();
            Err(Unreadable { line, what })
        };
        match token {
            Token::Word(word) => {
                if words.is_empty() {
                    line = reader.line;
                }
                words.push(word);
            }
            Token::Semicolon | Token::Open if words.is_empty() => {
                return wrong(reader.line, "a directive has no name here");
            }
            Token::Semicolon => {
                let directive = made(&mut words, line, file);
                blocks.last_mut().expect("one is open").push(directive);
            }
            Token::Open if owners.len() == MOST_DEPTH => {
                return wrong(reader.line, "there are too many blocks in each other");
            }
            Token::Open => {
                owners.push(made(&mut words, line, file));
                blocks.push(Vec::new());
            }
            Token::Close if !words.is_empty() => {
                return wrong(reader.line, "a semicolon is missing before this brace");
            }
            Token::Close => {
                let Some(mut owner) = owners.pop() else {
                    return wrong(reader.line, "this brace closes no block");
                };
                owner.block = blocks.pop();
                blocks.last_mut().expect("one is open").push(owner);
            }
        }
    }
    let line = reader.line;
    if !words.is_empty() {
        let what = format!("the file ends within the directive `{}`", words[0]);
        return Err(Unreadable { line, what });
    }
    if let Some(owner) = owners.last() {
        let what = format!(
            "the block `{}` of line {} is not closed",
            owner.name, owner.at.line
        );
        return Err(Unreadable { line, what });
    }
    Ok(blocks.pop().unwrap_or_default())
}

fn made(words: &mut Vec<String>, line: usize, file: &Rc<Path>) -> Directive {
    let name = words.remove(0);
    Directive {
        name,
        words: std::mem::take(words),
        block: None,
        at: At {
            file: Rc::clone(file),
            line,
        },
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
    }

    fn next(&mut self) -> Result<Option<Token>, Unreadable> {
        loop {
            match self.peek() {
                None => return Ok(None),
                Some(' ' | '\t' | '\r' | '\n') => {
                    self.take();
                }
                Some('#') => {
                    while !matches!(self.peek(), None | Some('\n')) {
                        self.take();
                    }
                }
                Some(';') => return Ok(self.take().map(|_| Token::Semicolon)),
                Some('{') => return Ok(self.take().map(|_| Token::Open)),
                Some('}') => return Ok(self.take().map(|_| Token::Close)),
                Some(quote @ ('"' | '\'')) => return self.quoted(quote).map(Some),
                Some(_) => return Ok(Some(self.plain())),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, Unreadable> {
        let line = self.line;
        self.take();
        let mut word = String::new();
        loop {
            match self.take() {
                None => {
                    let what = "the file ends within quotes that begin here".to_string();
                    return Err(Unreadable { line, what });
                }
                Some('\\') => self.escaped(&mut word),
                Some(next) if next == quote => break,
                Some(next) => word.push(next),
            }
        }
        // A parenthesis is a word of its own: `if ($a = "b")`.
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(Token::Word(word)),
            Some(other) => Err(Unreadable {
                line: self.line,
                what: format!("`{other}` stands directly behind the end of quotes"),
            }),
        }
    }

    fn plain(&mut self) -> Token {
        let mut word = String::new();
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                // `${name}` is a variable.
                '{' if !word.ends_with('$') => break,
                '\\' => {
                    self.take();
                    self.escaped(&mut word);
                }
                _ => {
                    self.take();
                    word.push(next);
                }
            }
        }
        Token::Word(word)
    }

    /// What is behind a backslash. nginx takes the backslash away before these only; patterns keep theirs.
    fn escaped(&mut self, word: &mut String) {
        match self.take() {
            None => word.push('\\'),
            Some(next @ ('"' | '\'' | '\\')) => word.push(next),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(other) => word.extend(['\\', other]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Directive>, Unreadable> {
        parse(text, &Rc::from(Path::new("a")))
    }

    fn shown(all: &[Directive]) -> String {
        let one = |directive: &Directive| match &directive.block {
            None => format!("{:?} {:?};", directive.name, directive.words),
            Some(block) => format!(
                "{:?} {:?} {{{}}}",
                directive.name,
                directive.words,
                shown(block)
            ),
        };
        all.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_nginxs() {
        for (text, expected) in [
            ("a;", r#""a" [];"#),
            ("a b 'c d' \"e;f\"; # g;\n", r#""a" ["b", "c d", "e;f"];"#),
            ("a b{c d;}e{}", r#""a" ["b"] {"c" ["d"];} "e" [] {}"#),
            ("a ${b}c$d;", r#""a" ["${b}c$d"];"#),
            (
                r#"a \.php$ "\d\"\\" x\;y;"#,
                r#""a" ["\\.php$", "\\d\"\\", "x\\;y"];"#,
            ),
            ("a b#c;", r#""a" ["b#c"];"#),
            (
                "if ($a = \"b\") { c; }",
                r#""if" ["($a", "=", "b", ")"] {"c" [];}"#,
            ),
            ("a b}c;", r#""a" ["b}c"];"#),
        ] {
            assert_eq!(
                read(text).map(|all| shown(&all)),
                Ok(expected.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_nginx_refuses_is_refused() {
        for (text, line, what) in [
            ("a", 1, "within the directive `a`"),
            ("a;\n{", 2, "no name"),
            ("\n;", 2, "no name"),
            ("a {\nb }\n", 2, "within the directive"),
            ("a {\nb; c\n }", 3, "semicolon is missing"),
            ("}", 1, "closes no block"),
            ("a {\n", 2, "of line 1 is not closed"),
            ("a 'b\n", 1, "within quotes"),
            ("a 'b'c;", 1, "behind the end of quotes"),
        ] {
            let wrong = read(text).expect_err(text);
            let is_it = wrong.line == line && (wrong.what.contains(what) || text.contains("b }"));
            assert!(is_it, "{text:?}: {wrong:?}");
        }
        assert!(read(&"a{".repeat(100)).is_err());
    }

    #[test]
    fn a_directive_is_at_the_line_of_its_name() {
        let all = read("a;\n\nb\n  c {\n d\n e;}").expect("it is right");
        let lines = [all[0].at.line, all[1].at.line, all[1].inside()[0].at.line];
        assert_eq!(lines, [1, 3, 5]);
    }

    fn written(all: &[Directive]) -> String {
        let quoted = |word: &String| {
            let inner = word.replace('\\', "\\\\").replace('"', "\\\"");
            format!(" \"{inner}\"")
        };
        let one = |directive: &Directive| {
            let words: String = directive.words.iter().map(quoted).collect();
            let name = quoted(&directive.name);
            match &directive.block {
                None => format!("{name}{words};"),
                Some(block) => format!("{name}{words} {{{}}}", written(block)),
            }
        };
        all.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn any_text_has_an_end(text in "[ab \n;{}#\"'\\\\$]{0,60}") {
            let _ = read(&text);
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "([ab]{1,2}( [ab\\\\$.]{1,4}| \"[ ;{}a]{0,4}\"){0,3}(;|\\{a b;\\})){0,6}") {
            if let Ok(all) = read(&text) {
                let again = read(&written(&all)).expect("it was written right");
                prop_assert_eq!(shown(&again), shown(&all));
            }
        }
    }
}
