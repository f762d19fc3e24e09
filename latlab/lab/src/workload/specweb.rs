//! SPECweb99's mixes: static files only, or with 30 % dynamic requests.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::{Expected, Kind, Request};
use crate::dynamic::{page, page_size, Page, Visitor, ADS, PAGES, USERS};
use crate::fileset::{File, FileSet, Popularity};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    Static,
    Full,
}

/// SPECweb99's shares of all requests; the remaining 70 % are static.
const SHARES: [(Page, f64); 4] = [
    (Page::Get, 0.1245),
    (Page::Ad, 0.126),
    (Page::Post, 0.048),
    (Page::Cgi, 0.0015),
];

/// Draws requests for a file set.
pub struct SpecwebSource {
    set: FileSet,
    mix: Mix,
    popularity: Popularity,
    prefix: String,
    dynamic_prefix: String,
}

fn kind_of(page: Page) -> Kind {
    match page {
        Page::Get => Kind::Dynamic,
        Page::Ad => Kind::Ad,
        Page::Post => Kind::Post,
        Page::Cgi => Kind::Cgi,
    }
}

/// Paths are numbered by file, and within a file: first the file itself, then its pages.
const PATHS_PER_FILE: u32 = 1 + PAGES.len() as u32;

impl SpecwebSource {
    pub fn new(set: FileSet, mix: Mix, prefix: &str, dynamic_prefix: &str) -> SpecwebSource {
        SpecwebSource {
            set,
            mix,
            popularity: Popularity::new(set.directories),
            prefix: prefix.trim_end_matches('/').to_string(),
            dynamic_prefix: dynamic_prefix.trim_end_matches('/').to_string(),
        }
    }

    pub fn draw(&mut self, random: &mut impl Rng) -> Request {
        let page = match self.mix {
            Mix::Static => None,
            Mix::Full => draw_page(random),
        };
        let file = self.popularity.draw(random);
        let visitor = match page {
            Some(Page::Ad | Page::Post) => Visitor {
                user: random.random_range(0..USERS),
                last_ad: random.random_range(0..ADS),
            },
            _ => Visitor::default(),
        };
        let within = page.map_or(0, |page| 1 + page as u32);
        Request {
            kind: page.map_or(Kind::Static, kind_of),
            class: file.class,
            path: file.index() * PATHS_PER_FILE + within,
            size: Some(match page {
                None => file.size(),
                Some(_) => page_size(file),
            }),
            visitor,
            checked: false,
        }
    }

    fn split(path: u32) -> (File, Option<Page>) {
        let page = (path % PATHS_PER_FILE).checked_sub(1);
        let page = page.and_then(|page| PAGES.get(page as usize).copied());
        (File::from_index(path / PATHS_PER_FILE), page)
    }

    pub fn path(&self, path: u32) -> String {
        match Self::split(path) {
            (file, None) => format!("{}/{}", self.prefix, file.path()),
            (file, Some(page)) => {
                format!("{}/{}/{}", self.dynamic_prefix, page.name(), file.path())
            }
        }
    }

    pub fn next_ad(&self, request: &Request) -> u16 {
        request.visitor.next_ad(self.set)
    }

    pub fn expected(&self, request: &Request) -> Expected {
        let (file, asked) = Self::split(request.path);
        let (before, after) = match asked {
            None => (String::new(), ""),
            Some(asked) => page(asked, file, request.visitor, self.set),
        };
        Expected {
            before: before.into_bytes(),
            file: self.set.key(file),
            file_size: file.size(),
            after: after.as_bytes(),
        }
    }
}

fn draw_page(random: &mut impl Rng) -> Option<Page> {
    let mut drawn = random.random::<f64>();
    for (page, share) in SHARES {
        if drawn < share {
            return Some(page);
        }
        drawn -= share;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Spec, Workload};

    fn full(directories: u32) -> Workload {
        let spec = Spec::Specweb {
            set: FileSet {
                seed: 5,
                directories,
            },
            mix: Mix::Full,
            prefix: "/".to_string(),
            dynamic_prefix: "/dynamic".to_string(),
        };
        Workload::new(&spec, 42, 0.1, 0, 1).unwrap()
    }

    #[test]
    fn the_full_mix_is_30_percent_dynamic() {
        let mut workload = full(100);
        let requests: Vec<Request> = (0..300_000).map(|_| workload.draw()).collect();
        let share = |kind| {
            let of_it = requests.iter().filter(|request| request.kind == kind);
            100.0 * of_it.count() as f64 / requests.len() as f64
        };
        let expected = [
            (Kind::Static, 70.0),
            (Kind::Dynamic, 12.45),
            (Kind::Ad, 12.6),
            (Kind::Post, 4.8),
        ];
        for (kind, expected) in expected {
            assert!(
                (share(kind) - expected).abs() < 0.4,
                "{kind:?}: {}",
                share(kind)
            );
        }
        assert!(
            (share(Kind::Cgi) - 0.15).abs() < 0.05,
            "{}",
            share(Kind::Cgi)
        );
        let checked = requests.iter().filter(|request| request.checked).count();
        assert!((25_000..35_000).contains(&checked));
    }

    #[test]
    fn every_request_has_its_path_and_what_must_come() {
        let mut workload = full(3);
        for _ in 0..2_000 {
            let request = workload.draw();
            let path = workload.path(request.path);
            let file = File::from_path(&path).expect("a file of the set");
            assert_eq!(file.class, request.class);
            assert_eq!(path.starts_with("/dynamic/"), request.kind != Kind::Static);
            let expected = workload.expected(&request).expect("it is known");
            let whole = expected.before.len() + expected.after.len();
            assert_eq!(Some(whole as u64 + expected.file_size), request.size);
        }
    }

    #[test]
    fn the_same_seed_is_the_same_workload() {
        let (mut one, mut other) = (full(20), full(20));
        for _ in 0..1000 {
            assert_eq!(one.draw(), other.draw());
        }
    }

    #[test]
    fn requests_are_what_a_server_reads() {
        let mut workload = full(2);
        let mut seen = 0;
        for _ in 0..5_000 {
            let request = workload.draw();
            let mut bytes = Vec::new();
            workload.render(&request, "host:8080", true, &mut bytes);
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Request::new(&mut headers);
            let head = parsed.parse(&bytes).unwrap().unwrap();
            assert_eq!(parsed.path, Some(workload.path(request.path).as_str()));
            let posted = request.kind == Kind::Post;
            assert_eq!(parsed.method, Some(if posted { "POST" } else { "GET" }));
            let body = String::from_utf8(bytes[head..].to_vec()).unwrap();
            assert_eq!(body.is_empty(), !posted);
            if posted {
                assert_eq!(Visitor::parse(&body), request.visitor);
                seen += 1;
            }
        }
        assert!(seen > 0);
    }
}
