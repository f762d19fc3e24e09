// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the requests and what has to answer them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::answers::Answer;

pub struct Entry {
    pub name: String,
    request: String,
    pub answers: Vec<Expected>,
    pub end: End,
    pub checks: Vec<Check>,
}

pub struct Expected {
    pub statuses: Vec<u16>,
    /// To HEAD, so it has no body.
    pub is_head: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Open,
    Close,
    /// The request is not complete; without the rest there is no answer.
    Wait,
}

pub enum Check {
    Field(String, String),
    NoField(String),
    Body(String),
}

impl Check {
    fn read(text: &str) -> Check {
        match (text.strip_prefix('!'), text.split_once('=')) {
            (Some(name), _) => Check::NoField(name.to_string()),
            (None, Some(("body", text))) => Check::Body(text.to_string()),
            (None, Some((name, value))) => Check::Field(name.to_string(), value.to_string()),
            (None, None) => panic!("{text:?} is no check"),
        }
    }

    pub fn hold(&self, answer: &Answer) -> Result<(), String> {
        let holds = match self {
            Check::Field(name, value) => answer.field(name) == Some(value),
            Check::NoField(name) => answer.field(name).is_none(),
            Check::Body(text) => answer.body == decode(text),
        };
        match (holds, self) {
            (true, _) => Ok(()),
            (false, Check::Field(name, value)) => Err(format!("{name} is not {value:?}")),
            (false, Check::NoField(name)) => Err(format!("there is {name}")),
            (false, Check::Body(text)) => Err(format!("the body is not {text:?}")),
        }
    }
}

impl Entry {
    fn read(line: &str) -> Entry {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [name, request, answer, why] = parts[..] else {
            panic!("not four parts: {line}");
        };
        assert!(!why.is_empty(), "{name} has no reason");
        let mut checks = answer.split("; ");
        let answer = checks.next().unwrap_or_default();
        let (answers, end) = answer.rsplit_once(' ').unwrap_or(("", answer));
        let end = match end {
            "open" => End::Open,
            "close" => End::Close,
            "wait" => End::Wait,
            _ => panic!("{name}: {end:?} is no end"),
        };
        let expected = |text: &str| Expected {
            is_head: text.ends_with('h'),
            statuses: text
                .trim_end_matches('h')
                .split('/')
                .map(|status| {
                    status
                        .parse()
                        .unwrap_or_else(|_| panic!("{name}: {status}"))
                })
                .collect(),
        };
        Entry {
            name: name.to_string(),
            request: request.to_string(),
            answers: answers.split_whitespace().map(expected).collect(),
            end,
            checks: checks.map(Check::read).collect(),
        }
    }

    pub fn bytes(&self, etag: &str) -> Vec<u8> {
        let text = self
            .request
            .replace("{get}", "GET /hello.txt HTTP/1.1⏎Host: a⏎")
            .replace("{h}", " HTTP/1.1⏎Host: a⏎")
            .replace("{etag}", etag);
        decode(&text)
    }
}

/// `⏎`, escapes with a backslash, and `{COUNT*TEXT}`.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '⏎' => bytes.extend_from_slice(b"\r\n"),
            '{' if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                let (inside, after) = rest.split_once('}').expect("a closing brace");
                let (count, text) = inside.split_once('*').expect("a star");
                let count = count.parse().expect("a number");
                bytes.extend(decode(text).repeat(count));
                rest = after;
            }
            '\\' => {
                let kind = rest.chars().next().expect("an escape");
                rest = &rest[1..];
                bytes.push(match kind {
                    'r' => b'\r',
                    'n' => b'\n',
                    't' => b'\t',
                    '0' => 0,
                    's' => b' ',
                    '\\' => b'\\',
                    'x' => {
                        let byte = u8::from_str_radix(&rest[..2], 16).expect("two digits");
                        rest = &rest[2..];
                        byte
                    }
                    other => panic!("\\{other} is no escape"),
                });
            }
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

pub fn read(folder: &Path) -> Vec<Entry> {
    let files = fs::read_dir(folder).expect("the corpus is there");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let mut entries = Vec::new();
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for entry in lines.map(Entry::read) {
            assert!(
                names.insert(entry.name.clone()),
                "{} is there twice",
                entry.name
            );
            entries.push(entry);
        }
    }
    entries
}
