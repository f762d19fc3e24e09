// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of an upstream, as it goes to the client: with the server's own fields and framing, whatever the upstream's
//! were.

use std::fmt::Write;
use std::ops::Range;

use super::http::Field;
use crate::http::response;

/// The head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Empty: the usual one.
    pub reason: String,
    /// Without those that are the connection's own, and without the length.
    pub fields: Vec<Field>,
    pub length: Option<u64>,
}

/// What received bytes are.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing more in them.
    More,
    /// An answer before the one that counts.
    Interim(Head),
    /// From here on both speak another protocol.
    Tunnel(Head),
    Head(Head),
    Content(Range<usize>),
    /// For the log of the server.
    Message(Range<usize>),
    /// The upstream has no room for the request.
    Overloaded,
    /// The whole answer was there.
    End,
}

/// Why the bytes of an upstream are no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The content does not have the length that the head has promised.
#[derive(Debug, PartialEq, Eq)]
pub struct WrongLength;

/// How the client sees where the content ends.
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    None,
    Length(u64),
    Chunked,
    ToTheEnd,
}

/// What the head needs beyond the upstream's.
pub struct Manner<'a> {
    pub is_head: bool,
    pub is_11: bool,
    pub closes: bool,
    pub date: &'a str,
    /// Of the location. They replace the upstream's.
    pub fields: &'a [(String, String)],
}

/// Bytes on their way to the client.
#[derive(Debug)]
pub struct Outlet {
    bytes: Queue,
    framing: Framing,
    /// Once the head is among the bytes.
    pub status: Option<u16>,
    /// Bytes of content so far.
    pub content: u64,
}

impl Default for Outlet {
    fn default() -> Outlet {
        Outlet {
            bytes: Queue::default(),
            framing: Framing::None,
            status: None,
            content: 0,
        }
    }
}

impl Outlet {
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.bytes
    }

    pub fn waiting(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// Where the content ends can be told from the end of the connection only.
    pub fn ends_with_connection(&self) -> bool {
        self.status.is_some() && self.framing == Framing::ToTheEnd
    }

    /// 100, as the server itself waits for the content.
    pub fn continues(&mut self) {
        self.bytes.push(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    pub fn interim(&mut self, head: &Head) {
        self.line(head);
        self.fields(&head.fields);
        self.bytes.push(b"\r\n");
    }

    /// Everything that comes is passed on as it is.
    pub fn tunnel(&mut self, head: &Head) {
        self.interim(head);
        self.status = Some(head.status);
        self.framing = Framing::ToTheEnd;
    }

    pub fn head(&mut self, head: &Head, manner: &Manner<'_>) {
        self.status = Some(head.status);
        self.line(head);
        let has = |name: &str| {
            head.fields
                .iter()
                .any(|(its, _)| its.eq_ignore_ascii_case(name))
        };
        let mut own = String::new();
        // Writing into memory cannot fail.
        if !has("date") {
            let _ = write!(own, "Date: {}\r\n", manner.date);
        }
        if !has("server") {
            own.push_str("Server: flash\r\n");
        }
        for (name, value) in manner.fields {
            let _ = write!(own, "{name}: {value}\r\n");
        }
        let has_no_content = manner.is_head || matches!(head.status, 204 | 304);
        self.framing = match (has_no_content, head.length, manner.is_11) {
            (true, ..) => Framing::None,
            (_, Some(length), _) => Framing::Length(length),
            (_, None, true) => Framing::Chunked,
            (_, None, false) => Framing::ToTheEnd,
        };
        if let (Some(length), false) = (head.length, head.status == 204) {
            let _ = write!(own, "Content-Length: {length}\r\n");
        }
        if self.framing == Framing::Chunked {
            own.push_str("Transfer-Encoding: chunked\r\n");
        }
        if manner.closes || self.framing == Framing::ToTheEnd {
            own.push_str("Connection: close\r\n");
        } else if !manner.is_11 {
            own.push_str("Connection: keep-alive\r\n");
        }
        self.bytes.push(own.as_bytes());
        let is_replaced = |name: &str| {
            let mut own = manner.fields.iter();
            own.any(|(its, _)| its.eq_ignore_ascii_case(name))
        };
        let kept = head.fields.iter().filter(|(name, _)| !is_replaced(name));
        let kept: Vec<Field> = kept.cloned().collect();
        self.fields(&kept);
        self.bytes.push(b"\r\n");
    }

    /// # Errors
    ///
    /// It is more than the head has promised.
    pub fn content(&mut self, content: &[u8]) -> Result<(), WrongLength> {
        if content.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::None => return Ok(()),
            Framing::Length(left) => {
                *left = left.checked_sub(content.len() as u64).ok_or(WrongLength)?;
                self.bytes.push(content);
            }
            Framing::Chunked => {
                self.bytes
                    .push(format!("{:x}\r\n", content.len()).as_bytes());
                self.bytes.push(content);
                self.bytes.push(b"\r\n");
            }
            Framing::ToTheEnd => self.bytes.push(content),
        }
        self.content += content.len() as u64;
        Ok(())
    }

    /// # Errors
    ///
    /// It is less than the head has promised.
    pub fn end(&mut self) -> Result<(), WrongLength> {
        match self.framing {
            Framing::Length(1..) => Err(WrongLength),
            Framing::Chunked => {
                self.bytes.push(b"0\r\n\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, head: &Head) {
        let reason = match head.reason.as_str() {
            "" => response::reason(head.status),
            reason => reason,
        };
        let line = format!("HTTP/1.1 {} {reason}\r\n", head.status);
        self.bytes.push(line.as_bytes());
    }

    fn fields(&mut self, fields: &[Field]) {
        for (name, value) in fields {
            self.bytes.push(name.as_bytes());
            self.bytes.push(b": ");
            self.bytes.push(value);
            self.bytes.push(b"\r\n");
        }
    }
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    pub fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// For what writes to the end.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// So many bytes were sent.
    pub fn advance(&mut self, sent: usize) {
        self.sent += sent;
        if self.is_empty() {
            self.clear();
        } else if self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    pub fn take(&mut self) -> Vec<u8> {
        let rest = self.as_slice().to_vec();
        self.clear();
        rest
    }
}
