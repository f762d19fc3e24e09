// SPDX-License-Identifier: MIT OR Apache-2.0
//! One request, and the reply that it expects.

use serde::{Deserialize, Serialize};

use crate::content::Key;
use crate::dynamic::Visitor;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    Static,
    Dynamic,
    Ad,
    Post,
    Cgi,
    List,
    Log,
    Size,
    /// For a file in memory.
    Hot,
    /// For a file whose name has not been looked up yet.
    Cold,
    /// For a name that does not exist and has not been looked up yet: 404 is the right answer.
    Missing,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Static => "static",
            Kind::Dynamic => "dynamic",
            Kind::Ad => "ad",
            Kind::Post => "post",
            Kind::Cgi => "cgi",
            Kind::List => "list",
            Kind::Log => "log",
            Kind::Size => "size",
            Kind::Hot => "hot",
            Kind::Cold => "cold",
            Kind::Missing => "missing",
        }
    }

    /// Whether this status is a right answer.
    pub fn expects(self, status: u16) -> bool {
        match self {
            Kind::Missing => status == 404,
            _ => (200..400).contains(&status),
        }
    }
}

pub const KINDS: [Kind; 11] = [
    Kind::Static,
    Kind::Dynamic,
    Kind::Ad,
    Kind::Post,
    Kind::Cgi,
    Kind::List,
    Kind::Log,
    Kind::Size,
    Kind::Hot,
    Kind::Cold,
    Kind::Missing,
];

/// The class of files that have none.
pub const NO_CLASS: u8 = u8::MAX;

/// One request, small enough to be copied for each that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    pub class: u8,
    /// A path's number; [`Workload::path`] returns its name.
    pub path: u32,
    /// Expected length of the body; `None` accepts any.
    pub size: Option<u64>,
    pub visitor: Visitor,
    /// Whether the content is checked, too.
    pub checked: bool,
}

/// The expected bytes of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub before: Vec<u8>,
    pub file: Key,
    pub file_size: u64,
    pub after: &'static [u8],
}

impl Expected {
    /// Whether these bytes are correct at this offset of the body.
    pub fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        let (mut at, mut rest) = (offset, bytes);
        let begin = self.before.len() as u64;
        let end = begin + self.file_size;
        while !rest.is_empty() {
            let (part_begin, part_end) = match at {
                _ if at < begin => (0, begin),
                _ if at < end => (begin, end),
                _ => (end, end + self.after.len() as u64),
            };
            let length = part_end.saturating_sub(at).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at(length);
            let within = at - part_begin;
            let plain = |part: &[u8]| {
                part.get(within as usize..)
                    .is_some_and(|part| part.starts_with(now))
            };
            let fits = match at {
                _ if at < begin => plain(&self.before),
                _ if at < end => self.file.matches(within, now),
                _ => length > 0 && plain(self.after),
            };
            if !fits {
                return false;
            }
            at += length as u64;
            rest = later;
        }
        true
    }
}
