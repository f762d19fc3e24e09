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
    /// A directory without an index.
    Directory,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Candidates {
    all: Vec<(Vec<u8>, Role)>,
    at: usize,
}

impl Candidates {
    pub fn of(request: &Request, path: &Path, options: &FileOptions) -> Candidates {
        let name = match path.is_directory {
            true => below(&path.name, &options.index),
            false => path.name.clone(),
        };
        let mut all = Vec::new();
        if options.precompressed {
            for coding in accepted(request.accept_encoding.as_deref()) {
                let coded = [&name, coding.ending().as_bytes()].concat();
                all.push((coded, Role::File(Some(coding))));
            }
        }
        all.push((name, Role::File(None)));
        if path.is_directory {
            all.push((path.name.clone(), Role::Directory));
        }
        Candidates { all, at: 0 }
    }

    /// Goes on to a later one. False: there are not so many.
    pub fn skip(&mut self, count: usize) -> bool {
        let exists = self.at + count < self.all.len();
        if exists {
            self.at += count;
        }
        exists
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
            Role::File(None) | Role::Directory => name,
        }
    }

    /// This one and those that come later.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let rest = self.all[self.at..].iter();
        rest.map(|(name, _)| name.clone()).collect()
    }
}

/// A name of the target that is not served, like `.git`: names with a dot are not for others, but for the directory
/// of RFC 8615.
pub fn is_hidden(path: &Path) -> bool {
    let mut names = path.name.split(|byte| *byte == b'/');
    names.any(|name| name.starts_with(b".") && name != b".well-known")
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
        let text = format!("GET {target} HTTP/1.0\r\nAccept-Encoding: gzip, br\r\n\r\n");
        let Parsed::Request(request, _) = Reader::default().read(text.as_bytes(), 4096) else {
            panic!("a request");
        };
        let Target::Path(path) = &request.target else {
            panic!("a path");
        };
        let options = FileOptions {
            precompressed,
            ..FileOptions::default()
        };
        let mut candidates = Candidates::of(&request, path, &options);
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
}
