// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names that may answer a request, in the order in which they are looked for.

use crate::http::codings::{accepted, Coding};
use crate::http::request::Request;
use crate::http::target::Path;
use crate::sites::FileOptions;

/// What a name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A file, in its compressed form if there is a coding.
    File(Option<Coding>),
    /// A script that the upstream runs if it is there.
    Script,
    /// A directory without an index.
    Directory,
    /// The upstream answers, whether there is a file or not: with this script, if it has a name.
    Upstream,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Candidates {
    all: Vec<(Vec<u8>, Role)>,
    at: usize,
    /// The first that answers for what does not exist.
    fallback: usize,
    /// The file that the path itself names, without its compressed form.
    own: Vec<u8>,
}

impl Candidates {
    pub fn of(request: &Request, path: &Path, options: &FileOptions) -> Candidates {
        let own = own_name(path, options.left_out);
        let mut all = Vec::new();
        let scripts = options.scripts.as_deref();
        let is_script = |name: &str| scripts.is_some_and(|ending| name.ends_with(ending));
        match path.is_directory {
            false => add_file(&mut all, request, own.clone(), options),
            // A program answers for its directories.
            true if options.before_upstream => {}
            true => {
                for index in &options.index {
                    match is_script(index) {
                        true => all.push((below(&own, index), Role::Script)),
                        false => add_file(&mut all, request, below(&own, index), options),
                    }
                }
                if options.lists || options.fallback.is_none() {
                    all.push((own.clone(), Role::Directory));
                }
            }
        }
        let fallback = all.len();
        match &options.fallback {
            _ if options.before_upstream => all.push((Vec::new(), Role::Upstream)),
            Some(_) if options.front().is_some() => {
                let name = options.front().unwrap_or_default();
                all.push((name.as_bytes().to_vec(), Role::Upstream));
            }
            Some(file) => add_file(&mut all, request, file.clone().into_bytes(), options),
            None => {}
        }
        Candidates {
            all,
            at: 0,
            fallback,
            own,
        }
    }

    /// It is what the path names, and no fallback.
    pub fn is_own(&self) -> bool {
        self.plain_name() == self.own
    }

    /// Of this one and those that come later, so many are what was asked for, and no fallback.
    pub fn asked(&self) -> usize {
        self.fallback.saturating_sub(self.at)
    }

    /// Goes on to a later one. False: there are not so many.
    pub fn skip(&mut self, count: usize) -> bool {
        let exists = self.at + count < self.all.len();
        if exists {
            self.at += count;
        }
        exists
    }

    /// There is one after this, and it is a name below the root.
    pub fn next_is_looked_for(&self) -> bool {
        let next = self.all.get(self.at + 1);
        next.is_some_and(|(_, role)| *role != Role::Upstream)
    }

    /// A script may be what is found.
    pub fn has_script(&self) -> bool {
        self.all.iter().any(|(_, role)| *role == Role::Script)
    }

    /// How many have been skipped.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn name(&self) -> &[u8] {
        &self.all[self.at].0
    }

    pub fn role(&self) -> Role {
        self.all[self.at].1
    }

    /// Without the ending of the compressed form.
    pub fn plain_name(&self) -> &[u8] {
        let (name, role) = &self.all[self.at];
        match role {
            Role::File(Some(coding)) => &name[..name.len() - coding.ending().len()],
            _ => name,
        }
    }

    /// This one and those that come later, as far as they have to be looked for.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let rest = self.all[self.at..].iter();
        let files = rest.filter(|(_, role)| *role != Role::Upstream);
        files.map(|(name, _)| name.clone()).collect()
    }
}

/// A name of the target that is not served, like `.git`: names with a dot are not for others, but for the directory
/// of RFC 8615.
pub fn is_hidden(path: &Path) -> bool {
    let mut names = path.name.split(|byte| *byte == b'/');
    names.any(|name| name.starts_with(b".") && name != b".well-known")
}

fn add_file(
    all: &mut Vec<(Vec<u8>, Role)>,
    request: &Request,
    name: Vec<u8>,
    options: &FileOptions,
) {
    if options.precompressed {
        for coding in accepted(request.accept_encoding.as_deref()) {
            let coded = [&name, coding.ending().as_bytes()].concat();
            all.push((coded, Role::File(Some(coding))));
        }
    }
    all.push((name, Role::File(None)));
}

/// The name below the root, without the first names of the path.
fn own_name(path: &Path, left_out: usize) -> Vec<u8> {
    let mut names = path.name.splitn(left_out + 1, |byte| *byte == b'/');
    names.nth(left_out).unwrap_or_default().to_vec()
}

fn below(directory: &[u8], name: &str) -> Vec<u8> {
    match directory {
        b"" => name.as_bytes().to_vec(),
        directory => [directory, b"/", name.as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, Reader};
    use crate::http::target::Target;

    fn candidates(target: &str, precompressed: bool) -> Vec<String> {
        let options = FileOptions {
            precompressed,
            ..FileOptions::default()
        };
        candidates_with(target, &options)
    }

    fn of(target: &str, options: &FileOptions) -> Candidates {
        let text = format!("GET {target} HTTP/1.0\r\nAccept-Encoding: gzip, br\r\n\r\n");
        let Parsed::Request(request, _) = Reader::default().read(text.as_bytes(), 4096) else {
            panic!("a request");
        };
        let Target::Path(path) = &request.target else {
            panic!("a path");
        };
        Candidates::of(&request, path, options)
    }

    fn candidates_with(target: &str, options: &FileOptions) -> Vec<String> {
        let mut candidates = of(target, options);
        let mut found = Vec::new();
        loop {
            let name = String::from_utf8_lossy(candidates.name()).into_owned();
            found.push(format!("{name} {:?}", candidates.role()));
            if !candidates.skip(1) {
                return found;
            }
        }
    }

    #[test]
    fn compressed_forms_come_first_and_directories_last() {
        assert_eq!(candidates("/a", false), ["a File(None)"]);
        assert_eq!(
            candidates("/a/", true),
            [
                "a/index.html.br File(Some(Brotli))",
                "a/index.html.gz File(Some(Gzip))",
                "a/index.html File(None)",
                "a Directory"
            ]
        );
        assert_eq!(
            candidates("/", false),
            ["index.html File(None)", " Directory"]
        );
    }

    #[test]
    fn a_fallback_comes_last() {
        let app = FileOptions {
            fallback: Some("index.html".to_string()),
            ..FileOptions::default()
        };
        let mut candidates = of("/a", &app);
        assert_eq!(candidates.asked(), 1);
        assert!(candidates.skip(1));
        assert_eq!(candidates.asked(), 0);
        let own = ["a File(None)", "index.html File(None)"];
        assert_eq!(candidates_with("/a", &app), own);
        let of_directory = ["a/index.html File(None)", "index.html File(None)"];
        assert_eq!(candidates_with("/a/", &app), of_directory);
        let php = FileOptions {
            index: vec!["index.php".to_string(), "index.html".to_string()],
            fallback: Some("index.php".to_string()),
            scripts: Some(".php".to_string()),
            ..FileOptions::default()
        };
        assert_eq!(
            candidates_with("/a", &php),
            ["a File(None)", "index.php Upstream"]
        );
        assert_eq!(
            candidates_with("/a/", &php),
            [
                "a/index.php Script",
                "a/index.html File(None)",
                "index.php Upstream"
            ]
        );
        let program = FileOptions {
            before_upstream: true,
            ..FileOptions::default()
        };
        assert_eq!(
            candidates_with("/a", &program),
            ["a File(None)", " Upstream"]
        );
        assert_eq!(candidates_with("/a/", &program), [" Upstream"]);
    }

    #[test]
    fn a_locations_path_can_be_left_out() {
        let options = FileOptions {
            left_out: 2,
            ..FileOptions::default()
        };
        let first = |target: &str| candidates_with(target, &options).remove(0);
        assert_eq!(first("/a/b/c/d"), "c/d File(None)");
        assert_eq!(first("/a/b/"), "index.html File(None)");
        assert_eq!(first("/a/b"), " File(None)");
    }
}
