// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications whose processes write to the client's socket themselves (seeds/000, 2.5.5): what passes between the
//! server and a process. `flash/docs/applications.md` describes the protocol.
//!
//! `host` starts the processes and passes their channels on, `pool` has those that wait for a request, and
//! `connection/lending.rs` lends them clients' sockets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::variables::{Script, Variable};
use crate::http::target::Path;

mod children;
pub mod host;
mod manager;
pub mod pool;
pub mod queues;

/// Of the protocol.
pub const VERSION: u8 = 1;
/// Bytes of each message of a process.
pub const SAID: usize = 32;
/// Bytes of a request, with its variables and what has been read of its content. A Unix socket takes more.
pub const MAX_REQUEST: usize = 128 << 10;
/// In front of the variables.
const HEAD: usize = 32;

const HELLO: u8 = 1;
const REQUEST: u8 = 2;
const PROGRESS: u8 = 3;
const DONE: u8 = 4;

/// Of a request: the client may keep its connection, waits for a 100, speaks HTTP/1.1, and wants no content.
pub const KEEPS: u16 = 1;
pub const EXPECTS: u16 = 2;
pub const IS_11: u16 = 4;
pub const IS_HEAD: u16 = 8;
/// Of an answer: the connection can have another request; the answer has no end.
const KEPT: u32 = 1;
const CUT: u32 = 2;

/// Where the processes come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The server starts them.
    Command {
        command: Vec<String>,
        directory: PathBuf,
        environment: Vec<(String, String)>,
    },
    /// They are started elsewhere, and listen.
    Socket {
        path: PathBuf,
        /// Who may listen there. `None`: who runs the server, or root.
        user: Option<u32>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Of the location, without slashes at its ends.
    pub location: Vec<u8>,
    pub source: Source,
    pub processes: usize,
    /// Requests that wait for a process, and how long each waits.
    pub queue: usize,
    pub wait_ms: u64,
    /// For a process to answer, and without a word of it.
    pub time_ms: u64,
    pub silence_ms: u64,
    /// Further variables.
    pub variables: Vec<(String, String)>,
}

impl Options {
    pub fn script(&self, path: &Path) -> Script {
        Script::of_application(path, &self.location)
    }
}

/// What a process needs to answer a request, beside the client's socket.
pub struct Order<'a> {
    pub flags: u16,
    pub variables: &'a [Variable],
    /// Bytes of the request's content, and those that have been read already.
    pub length: u64,
    pub content: &'a [u8],
    /// Lines of the answer's head that the server wants to have there.
    pub fields: &'a [u8],
    /// How long the client may take nothing, in milliseconds.
    pub patience_ms: u64,
}

impl Order<'_> {
    /// Without its number. `None`: it is longer than a message may be.
    pub fn message(&self) -> Option<Vec<u8>> {
        let mut variables = Vec::with_capacity(2048);
        for (name, value) in self.variables {
            variables.extend_from_slice(name.as_bytes());
            variables.push(b'=');
            variables.extend_from_slice(value);
            variables.push(0);
        }
        let whole = HEAD + variables.len() + self.fields.len() + self.content.len();
        if whole > MAX_REQUEST {
            return None;
        }
        let patience = u32::try_from(self.patience_ms).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(whole);
        message.extend_from_slice(&[VERSION, REQUEST]);
        message.extend_from_slice(&self.flags.to_le_bytes());
        message.extend_from_slice(&(variables.len() as u32).to_le_bytes());
        message.extend_from_slice(&0u64.to_le_bytes());
        message.extend_from_slice(&self.length.to_le_bytes());
        message.extend_from_slice(&patience.to_le_bytes());
        message.extend_from_slice(&(self.fields.len() as u32).to_le_bytes());
        message.extend_from_slice(&variables);
        message.extend_from_slice(self.fields);
        message.extend_from_slice(self.content);
        Some(message)
    }
}

/// Puts its number into a request.
fn set_number(message: &mut [u8], number: u64) {
    message[8..16].copy_from_slice(&number.to_le_bytes());
}

/// What a process says of its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    pub number: u64,
    /// Zero: it has none yet.
    pub status: u16,
    /// Bytes of content that the client's socket has taken.
    pub content: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It can take a request.
    Hello,
    /// It still answers.
    Progress(Report),
    /// It does not use the connection any more.
    Done(Report, Then),
}

/// What the server does with a connection that has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Keep,
    Close,
    /// The client has to see that it has not got everything.
    Cut,
}

impl Said {
    /// `None`: no process of this protocol says that.
    pub fn read(message: &[u8]) -> Option<Said> {
        let message: &[u8; SAID] = message.try_into().ok()?;
        let (head, rest) = message.split_first_chunk::<8>()?;
        let [version, kind, low, high, flags @ ..] = *head;
        let (status, flags) = (u16::from_le_bytes([low, high]), u32::from_le_bytes(flags));
        let mut words = rest.chunks_exact(8).map(|word| {
            let word = word.try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        let (number, content, unread) = (words.next()?, words.next()?, words.next()?);
        if version != VERSION {
            return None;
        }
        let report = Report {
            number,
            status,
            content,
        };
        let is_status = (200..600).contains(&status);
        match (kind, flags) {
            (HELLO, 0) if rest.iter().all(|byte| *byte == 0) && status == 0 => Some(Said::Hello),
            (PROGRESS, 0) if (is_status || status == 0) && unread == 0 => {
                Some(Said::Progress(report))
            }
            (DONE, 0 | KEPT | CUT) if is_status => {
                let then = match flags {
                    CUT => Then::Cut,
                    // Where the next request begins is not known if some of this one has not been read.
                    KEPT if unread == 0 => Then::Keep,
                    _ => Then::Close,
                };
                Some(Said::Done(report, then))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(kind: u8, status: u16, flags: u32, words: [u64; 3]) -> Vec<u8> {
        let mut message = vec![VERSION, kind];
        message.extend_from_slice(&status.to_le_bytes());
        message.extend_from_slice(&flags.to_le_bytes());
        for word in words {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message
    }

    #[test]
    fn a_process_says_one_of_three_things() {
        assert_eq!(Said::read(&said(1, 0, 0, [0; 3])), Some(Said::Hello));
        let report = Report {
            number: 7,
            status: 200,
            content: 5,
        };
        let progress = Said::read(&said(3, 200, 0, [7, 5, 0]));
        assert_eq!(progress, Some(Said::Progress(report)));
        let done = |then| Some(Said::Done(report, then));
        assert_eq!(Said::read(&said(4, 200, 1, [7, 5, 0])), done(Then::Keep));
        assert_eq!(Said::read(&said(4, 200, 0, [7, 5, 0])), done(Then::Close));
        assert_eq!(Said::read(&said(4, 200, 2, [7, 5, 9])), done(Then::Cut));
        // What was not read would be taken for the next request.
        assert_eq!(Said::read(&said(4, 200, 1, [7, 5, 3])), done(Then::Close));
        for wrong in [
            said(1, 0, 0, [1, 0, 0]),
            said(1, 200, 0, [0; 3]),
            said(2, 200, 0, [7, 5, 0]),
            said(4, 199, 0, [7, 5, 0]),
            said(4, 600, 0, [7, 5, 0]),
            said(4, 200, 3, [7, 5, 0]),
            said(3, 200, 1, [7, 5, 0]),
            said(4, 200, 1, [7, 5, 0])[..31].to_vec(),
            [said(4, 200, 1, [7, 5, 0]), vec![0]].concat(),
            Vec::new(),
        ] {
            assert_eq!(Said::read(&wrong), None, "{wrong:?}");
        }
        let mut later = said(4, 200, 1, [7, 5, 0]);
        later[0] = VERSION + 1;
        assert_eq!(Said::read(&later), None);
    }

    /// As a process reads it.
    type Parts<'a> = (u16, u64, u64, Vec<&'a [u8]>, &'a [u8], &'a [u8]);

    fn take_apart(message: &[u8]) -> Parts<'_> {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().expect("4 bytes"));
        let flags = u16::from_le_bytes([message[2], message[3]]);
        let (variables, rest) = message[HEAD..].split_at(half(4) as usize);
        let (fields, content) = rest.split_at(half(28) as usize);
        let mut parts: Vec<&[u8]> = variables.split(|byte| *byte == 0).collect();
        assert_eq!(parts.pop(), Some(&[][..]));
        (flags, word(8), word(16), parts, fields, content)
    }

    proptest! {
        #[test]
        fn requests_come_apart_as_they_were_put_together(
            values in proptest::collection::vec("[^\0]{0,40}", 0..20),
            content in proptest::collection::vec(any::<u8>(), 0..2000),
            fields in "[ -~]{0,50}",
            number: u64,
            flags in 0u16..16,
        ) {
            let variables: Vec<Variable> =
                values.iter().map(|value| ("NAME".to_string(), value.clone().into_bytes())).collect();
            let order = Order {
                flags,
                variables: &variables,
                length: content.len() as u64 + 1,
                content: &content,
                fields: fields.as_bytes(),
                patience_ms: u64::MAX,
            };
            let mut message = order.message().expect("it is short");
            set_number(&mut message, number);
            let (its_flags, its_number, length, its_variables, its_fields, its_content) = take_apart(&message);
            prop_assert_eq!((its_flags, its_number, length), (flags, number, content.len() as u64 + 1));
            prop_assert_eq!(its_fields, fields.as_bytes());
            prop_assert_eq!(its_content, &content[..]);
            prop_assert_eq!(its_variables.len(), values.len());
            for (its, value) in its_variables.iter().zip(&values) {
                prop_assert_eq!(*its, &[b"NAME=", value.as_bytes()].concat()[..]);
            }
        }

        #[test]
        fn whatever_a_process_says_is_understood_or_refused(message in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(Said::Done(report, _) | Said::Progress(report)) = Said::read(&message) {
                prop_assert!(report.status == 0 || (200..600).contains(&report.status));
            }
        }
    }

    #[test]
    fn a_request_has_a_limit() {
        let variables = vec![("NAME".to_string(), vec![b'v'; MAX_REQUEST])];
        let order = Order {
            flags: 0,
            variables: &variables,
            length: 0,
            content: b"",
            fields: b"",
            patience_ms: 1,
        };
        assert!(order.message().is_none());
    }
}
