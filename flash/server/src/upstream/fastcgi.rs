// SPDX-License-Identifier: MIT OR Apache-2.0
//! FastCGI to an upstream, as a web server to a responder.

use std::path::PathBuf;

use super::answer::{Malformed, Step};
use super::records::{Piece, Records};
use super::script_head::Collector;
use super::variables::Script;
use crate::http::target::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Where the upstream finds the scripts.
    pub root: PathBuf,
    /// Of the location, without slashes at its ends.
    pub location: Vec<u8>,
    /// How names of scripts end, and which one a directory shows. `None`: the location is one program's.
    pub scripts: Option<(String, String)>,
    /// It reads content without CONTENT_LENGTH, to its end.
    pub takes_chunked: bool,
    /// Further variables.
    pub variables: Vec<(String, String)>,
}

impl Options {
    /// The program that answers this path. `None`: it is a file's.
    pub fn script(&self, path: &Path) -> Option<Script> {
        match &self.scripts {
            None => Some(Script::of_application(path, &self.location)),
            Some((ending, index)) => Script::of_file(path, ending, index),
        }
    }

    /// The path itself names a script.
    pub fn names_script(&self, path: &Path) -> bool {
        let is_script = |ending: &String| {
            let mut names = path.name.split(|byte| *byte == b'/');
            names.any(|name| name.ends_with(ending.as_bytes()))
        };
        self.scripts
            .as_ref()
            .is_some_and(|(ending, _)| is_script(ending))
    }
}

/// Reads the answer to one request.
#[derive(Debug, Default)]
pub struct Reader {
    records: Records,
    head: Option<Collector>,
    has_head: bool,
}

impl Reader {
    pub fn new() -> Reader {
        Reader {
            head: Some(Collector::default()),
            ..Reader::default()
        }
    }

    pub fn keeps_connection(&self) -> bool {
        self.records.has_ended()
    }

    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// The end of the connection is never the end of an answer.
    pub fn ends(&self) -> bool {
        self.records.has_ended()
    }

    /// # Errors
    ///
    /// They are no answer.
    pub fn next(&mut self, received: &[u8]) -> Result<(usize, Step), Malformed> {
        let mut at = 0;
        loop {
            let (used, piece) = self.records.next(&received[at..])?;
            let begin = at;
            at += used;
            match piece {
                Piece::More => return Ok((at, Step::More)),
                Piece::Other => {}
                Piece::Error(part) => {
                    return Ok((at, Step::Message(begin + part.start..begin + part.end)))
                }
                Piece::Overloaded => return Ok((at, Step::Overloaded)),
                Piece::Ended if !self.has_head => {
                    return Err(Malformed("the request ended without an answer"))
                }
                Piece::Ended => return Ok((at, Step::End)),
                Piece::Out(part) => {
                    let part = begin + part.start..begin + part.end;
                    let Some(head) = &mut self.head else {
                        return Ok((at, Step::Content(part)));
                    };
                    if let Some((behind, found)) = head.add(&received[part])? {
                        self.head = None;
                        self.has_head = true;
                        self.records.take_back(behind);
                        return Ok((at - behind, Step::Head(found)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = vec![1, kind, 0, 1, 0, content.len() as u8, 0, 0];
        record.extend_from_slice(content);
        record
    }

    #[test]
    fn an_answer_has_a_head_content_and_an_end() {
        let all = [
            record(7, b"warning"),
            record(6, b"Content-Type: a/b\r"),
            record(6, b"\n\r\nco"),
            record(6, b"ntent"),
            record(6, b""),
            record(3, &[0; 8]),
        ]
        .concat();
        for size in [1, 3, 8, 1000] {
            let mut reader = Reader::new();
            let (mut content, mut messages, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
            let mut held = Vec::new();
            'all: for piece in all.chunks(size) {
                held.extend_from_slice(piece);
                loop {
                    let (used, step) = reader.next(&held).expect("an answer");
                    match step {
                        Step::More => {
                            held.drain(..used);
                            break;
                        }
                        Step::Head(head) => statuses.push(head.status),
                        Step::Content(part) => content.extend_from_slice(&held[part]),
                        Step::Message(part) => messages.extend_from_slice(&held[part]),
                        Step::End => break 'all,
                        other => panic!("{other:?}"),
                    }
                    held.drain(..used);
                }
            }
            assert_eq!(
                (statuses, content.as_slice()),
                (vec![200], b"content".as_slice()),
                "{size}"
            );
            assert_eq!(messages, b"warning");
            assert!(reader.keeps_connection());
        }
        let mut reader = Reader::new();
        assert!(reader.next(&record(3, &[0; 8])).is_err());
    }
}
