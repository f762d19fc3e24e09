//! The workload: a source of requests, which is the same for the same seed, and the expected reply to
//! each.

mod access_log;
mod class_source;
mod lists;
mod request;
mod shape;
mod specweb;

use std::rc::Rc;

use anyhow::Result;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng;
use serde::{Deserialize, Serialize};

use crate::content::mix;
use class_source::ClassSource;

pub use access_log::{read_access_log, replay, Logged, Replay, Skipped};
pub use lists::{read_sizes, read_urls, ListSource, SizeSource};
pub use request::{Expected, Kind, Request, KINDS, NO_CLASS};
pub use shape::{Header, Method, Shape, LARGEST_BODY};
pub use specweb::{Mix, SpecwebSource};

/// What to request, as given on the command line and sent to generator processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "source")]
pub enum Spec {
    Specweb {
        set: crate::fileset::FileSet,
        mix: Mix,
        /// Prefix of the paths of files and dynamic pages.
        prefix: String,
        dynamic_prefix: String,
    },
    /// The paths in order, repeated from the first after the last.
    List { paths: Vec<String>, log: bool },
    /// Sizes with weights; the path is made from the size.
    Sizes {
        sizes: Vec<(u64, f64)>,
        template: String,
    },
    /// The names of a tree in this order.
    Classes {
        tree: crate::classes::Tree,
        names: Vec<u32>,
    },
}

/// Longer bodies are sent separately instead of being copied behind the head.
const COPIED_BODY: usize = 64 << 10;

/// A source of requests.
pub struct Workload {
    source: Source,
    shape: Shape,
    /// The body, if it is sent separately.
    body: Rc<[u8]>,
    random: Xoshiro256PlusPlus,
    checked_share: f64,
}

enum Source {
    Specweb(SpecwebSource),
    List(ListSource),
    Sizes(SizeSource),
    Classes(ClassSource),
}

impl Workload {
    /// The part of the workload for one of several generator processes.
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
            Spec::Classes { tree, names } => {
                Source::Classes(ClassSource::new(*tree, names.clone(), process, processes)?)
            }
        };
        Ok(Workload {
            source,
            shape: Shape::default(),
            body: Rc::new([]),
            random: Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ (u64::from(process) << 48))),
            checked_share,
        })
    }

    /// Changes the shape of the requests.
    pub fn shaped(self, shape: Shape) -> Workload {
        let apart = |body: &Vec<u8>| body.len() > COPIED_BODY;
        Workload {
            body: match shape.body.as_ref().is_some_and(apart) {
                true => shape.shared_body(),
                false => Rc::new([]),
            },
            shape,
            ..self
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn draw(&mut self) -> Request {
        use rand::RngExt;
        let mut request = match &mut self.source {
            Source::Specweb(source) => source.draw(&mut self.random),
            Source::List(source) => source.draw(),
            Source::Sizes(source) => source.draw(&mut self.random),
            Source::Classes(source) => source.draw(),
        };
        request.checked = self.random.random::<f64>() < self.checked_share;
        request
    }

    /// The name of a path's number.
    pub fn path(&self, path: u32) -> String {
        match &self.source {
            Source::Specweb(source) => source.path(path),
            Source::List(source) => source.path(path),
            Source::Sizes(source) => source.path(path),
            Source::Classes(source) => source.path(path),
        }
    }

    /// Renders the bytes to send. Returns those that follow them.
    pub fn render(&self, request: &Request, host: &str, last: bool, out: &mut Vec<u8>) -> Rc<[u8]> {
        let shape = &self.shape;
        let path = self.path(request.path);
        let form = match request.kind {
            Kind::Post => Some(request.visitor.form()),
            _ => None,
        };
        let method = match form {
            Some(_) => "POST",
            None => shape.method(),
        };
        let mut put = |parts: &[&str]| {
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
        };
        put(&[method, " ", &path, " HTTP/1.1\r\n"]);
        if !shape.has("host") {
            put(&["Host: ", host, "\r\n"]);
        }
        if !shape.has("user-agent") {
            put(&["User-Agent: latlab\r\n"]);
        }
        for header in &shape.headers {
            put(&[&header.name, ": ", &header.value, "\r\n"]);
        }
        if request.kind == Kind::Ad {
            put(&["Cookie: ", &request.visitor.cookie(), "\r\n"]);
        }
        if last && !shape.has("connection") {
            put(&["Connection: close\r\n"]);
        }
        if form.is_some() && !shape.has("content-type") {
            put(&["Content-Type: application/x-www-form-urlencoded\r\n"]);
        }
        let body = form
            .as_ref()
            .map(String::as_bytes)
            .or(shape.body.as_deref());
        if let Some(body) = body {
            put(&["Content-Length: ", &body.len().to_string(), "\r\n"]);
        }
        put(&["\r\n"]);
        match body {
            Some(_) if !self.body.is_empty() => return Rc::clone(&self.body),
            Some(body) => out.extend_from_slice(body),
            None => {}
        }
        Rc::new([])
    }

    /// The expected body; `None` if it is unknown.
    pub fn expected(&self, request: &Request) -> Option<Expected> {
        match &self.source {
            Source::Specweb(source) => Some(source.expected(request)),
            Source::Classes(source) => source.expected(request),
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
    use crate::content::Key;

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

    fn rendered(shape: Shape, last: bool) -> String {
        let spec = Spec::List {
            paths: vec!["/a".to_string()],
            log: false,
        };
        let mut workload = Workload::new(&spec, 1, 0.0, 0, 1).unwrap().shaped(shape);
        let request = workload.draw();
        let mut out = Vec::new();
        let behind = workload.render(&request, "h:1", last, &mut out);
        out.extend_from_slice(&behind);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_have_the_shape_that_was_asked_for() {
        assert_eq!(
            rendered(Shape::default(), true),
            "GET /a HTTP/1.1\r\nHost: h:1\r\nUser-Agent: latlab\r\nConnection: close\r\n\r\n"
        );
        let headers = [
            "host: x",
            "Accept: a",
            "Accept: b",
            "CONNECTION: keep-alive",
        ];
        let shape = Shape {
            method: Some(Method::parse("PATCH").unwrap()),
            headers: headers.map(|text| Header::parse(text).unwrap()).to_vec(),
            body: Some(b"a=1".to_vec()),
        };
        assert_eq!(
            rendered(shape, true),
            "PATCH /a HTTP/1.1\r\nUser-Agent: latlab\r\nhost: x\r\nAccept: a\r\nAccept: b\r\n\
            CONNECTION: keep-alive\r\nContent-Length: 3\r\n\r\na=1"
        );
        let large = Shape {
            body: Some(vec![b'x'; COPIED_BODY + 1]),
            ..Shape::default()
        };
        let sent = rendered(large, false);
        assert!(sent.contains("\r\nContent-Length: 65537\r\n\r\nxx"));
        assert_eq!(
            sent.split_once("\r\n\r\n").unwrap().1.len(),
            COPIED_BODY + 1
        );
        let empty = Shape {
            body: Some(Vec::new()),
            ..Shape::default()
        };
        assert!(rendered(empty, false).contains("\r\nContent-Length: 0\r\n\r\n"));
    }
}
