//! What is asked for: a source of requests that is the same for the same seed, and what must come back
//! for each.

mod access_log;
mod lists;
mod specweb;

use anyhow::Result;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng;
use serde::{Deserialize, Serialize};

use crate::content::{mix, Key};
use crate::dynamic::Visitor;

pub use access_log::{read_access_log, replay, Logged, Replay, Skipped};
pub use lists::{read_sizes, read_urls, ListSource, SizeSource};
pub use specweb::{Mix, SpecwebSource};

/// What a request is for.
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
}

pub const KINDS: [Kind; 8] = [
    Kind::Static,
    Kind::Dynamic,
    Kind::Ad,
    Kind::Post,
    Kind::Cgi,
    Kind::List,
    Kind::Log,
    Kind::Size,
];

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
        }
    }
}

/// Of files that are in no class.
pub const NO_CLASS: u8 = u8::MAX;

/// One request, small enough to be kept for each that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    pub class: u8,
    /// Its name is [`Workload::path`].
    pub path: u32,
    /// Bytes of the body that must come; `None`: whatever the server says.
    pub size: Option<u64>,
    pub visitor: Visitor,
    /// Whether the content is checked, too.
    pub checked: bool,
}

/// What the bytes of a body must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub before: Vec<u8>,
    pub file: Key,
    pub file_size: u64,
    pub after: &'static [u8],
}

impl Expected {
    /// Whether these bytes belong at this offset of the body.
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

/// What is asked for, as the command line says it and as generator processes are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "source")]
pub enum Spec {
    Specweb {
        set: crate::fileset::FileSet,
        mix: Mix,
        /// Paths of files and of dynamic pages begin with these.
        prefix: String,
        dynamic_prefix: String,
    },
    /// One path after the other, from the first again after the last.
    List { paths: Vec<String>, log: bool },
    /// Sizes with weights; the path is made from the size.
    Sizes {
        sizes: Vec<(u64, f64)>,
        template: String,
    },
}

/// A source of requests.
pub struct Workload {
    source: Source,
    random: Xoshiro256PlusPlus,
    checked_share: f64,
}

enum Source {
    Specweb(SpecwebSource),
    List(ListSource),
    Sizes(SizeSource),
}

impl Workload {
    /// The part that one of several generator processes asks for.
    pub fn new(
        spec: &Spec,
        seed: u64,
        checked_share: f64,
        process: u16,
        processes: u16,
    ) -> Result<Workload> {
        let source = match spec {
            Spec::Specweb {
                set,
                mix,
                prefix,
                dynamic_prefix,
            } => Source::Specweb(SpecwebSource::new(*set, *mix, prefix, dynamic_prefix)),
            Spec::List { paths, log } => {
                Source::List(ListSource::new(paths.clone(), *log, process, processes)?)
            }
            Spec::Sizes { sizes, template } => {
                Source::Sizes(SizeSource::new(sizes.clone(), template)?)
            }
        };
        Ok(Workload {
            source,
            random: Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ (u64::from(process) << 48))),
            checked_share,
        })
    }

    pub fn draw(&mut self) -> Request {
        use rand::RngExt;
        let mut request = match &mut self.source {
            Source::Specweb(source) => source.draw(&mut self.random),
            Source::List(source) => source.draw(),
            Source::Sizes(source) => source.draw(&mut self.random),
        };
        request.checked = self.random.random::<f64>() < self.checked_share;
        request
    }

    /// The name behind a request's number.
    pub fn path(&self, path: u32) -> String {
        match &self.source {
            Source::Specweb(source) => source.path(path),
            Source::List(source) => source.path(path),
            Source::Sizes(source) => source.path(path),
        }
    }

    /// The bytes to send.
    pub fn render(&self, request: &Request, host: &str, last: bool, out: &mut Vec<u8>) {
        let path = self.path(request.path);
        let form = match request.kind {
            Kind::Post => Some(request.visitor.form()),
            _ => None,
        };
        let method = if form.is_some() { "POST" } else { "GET" };
        for part in [method, " ", &path, " HTTP/1.1\r\nHost: ", host, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b"User-Agent: latlab\r\n");
        if request.kind == Kind::Ad {
            let cookie = request.visitor.cookie();
            out.extend_from_slice(format!("Cookie: {cookie}\r\n").as_bytes());
        }
        if last {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        if let Some(form) = form {
            let length = form.len();
            out.extend_from_slice(b"Content-Type: application/x-www-form-urlencoded\r\n");
            out.extend_from_slice(format!("Content-Length: {length}\r\n\r\n{form}").as_bytes());
        } else {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// What the body must be; none if nobody knows.
    pub fn expected(&self, request: &Request) -> Option<Expected> {
        match &self.source {
            Source::Specweb(source) => Some(source.expected(request)),
            _ => None,
        }
    }

    /// The advertisement that the reply must set as the user's last one.
    pub fn expected_ad(&self, request: &Request) -> Option<u16> {
        match (&self.source, request.kind) {
            (Source::Specweb(source), Kind::Ad | Kind::Post) => Some(source.next_ad(request)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_bytes_are_found_wherever_they_are_cut() {
        let expected = Expected {
            before: b"head:".to_vec(),
            file: Key::new(1, 2),
            file_size: 20,
            after: b":tail",
        };
        let mut whole = b"head:".to_vec();
        let mut file = vec![0; 20];
        expected.file.fill(0, &mut file);
        whole.extend(file);
        whole.extend(b":tail");
        for from in 0..whole.len() {
            for to in from..=whole.len() {
                assert!(expected.matches(from as u64, &whole[from..to]));
            }
            let mut damaged = whole.clone();
            damaged[from] ^= 1;
            assert!(!expected.matches(0, &damaged), "at {from}");
        }
        whole.push(b'!');
        assert!(!expected.matches(0, &whole));
    }
}
