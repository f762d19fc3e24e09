// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for the paths of a virtual host: as the configuration says it, and as requests are answered by it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::access::{Access, Auth, AuthSettings};
use crate::address::Address;
use crate::files::Root;
use crate::template::Template;
use crate::tls;
use crate::types::Types;
use crate::upstream::{self, Upstream};

/// How files are found and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// The names that a directory shows: the first that exists.
    pub index: Vec<String>,
    /// A directory without an index shows its names.
    pub lists: bool,
    /// A file may have compressed forms beside it: `.br`, `.zst` and `.gz`.
    pub precompressed: bool,
    /// Names that begin with a dot are served.
    pub dotfiles: bool,
    /// How many names at the begin of a path are the location's, and not a file's.
    pub left_out: usize,
    /// What answers if nothing of the name exists: a file, or a script.
    pub fallback: Option<String>,
    /// The upstream answers what is no file.
    pub before_upstream: bool,
    /// How the names of scripts end that are looked for as files are.
    pub scripts: Option<String>,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            index: vec!["index.html".to_string()],
            lists: false,
            precompressed: false,
            dotfiles: false,
            left_out: 0,
            fallback: None,
            before_upstream: false,
            scripts: None,
        }
    }
}

impl FileOptions {
    /// The script that answers for what is no file.
    pub fn front(&self) -> Option<&str> {
        let (ending, name) = (self.scripts.as_deref()?, self.fallback.as_deref()?);
        name.ends_with(ending).then_some(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub to: Template,
    pub status: u16,
}

/// The same answer to every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    pub status: u16,
    /// `None`: the usual page of this status.
    pub text: Option<String>,
    pub kind: String,
}

/// What holds for the paths below one, before its directory is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// As in a URL. It matches whole segments: `/a` stands for `/a` and `/a/b`, not for `/ab`.
    pub path: String,
    /// For nothing below it.
    pub is_exact: bool,
    /// For names that end so only, in lower case. Empty: for all.
    pub endings: Vec<String>,
    /// `None`: it has no files.
    pub directory: Option<PathBuf>,
    pub files: FileOptions,
    pub redirect: Option<Redirect>,
    pub fixed: Option<Fixed>,
    /// Fields of each answer.
    pub fields: Vec<(String, String)>,
    /// How long clients may keep a file without asking again.
    pub cache: Option<Duration>,
    pub access: Access,
    pub types: Types,
    /// A password is asked for.
    pub auth: Option<AuthSettings>,
    /// Bytes per second of a connection.
    pub rate: Option<u64>,
    /// What answers in place of files.
    pub upstream: Option<upstream::Plan>,
}

/// An address at which clients speak TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsListen {
    pub address: Address,
    pub settings: tls::Settings,
}

/// A virtual host, before its directories are opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualHost {
    pub listen: Vec<Address>,
    pub tls: Vec<TlsListen>,
    /// In lower case: `example.org`, or `*.example.org` for every name below it.
    pub names: Vec<String>,
    /// One has the path `/`.
    pub locations: Vec<Location>,
    /// Files with the pages of errors, by status.
    pub error_pages: Vec<(u16, PathBuf)>,
}

impl VirtualHost {
    /// The files of one directory, for every name.
    pub fn of_directory(
        directory: PathBuf,
        listen: Vec<Address>,
        files: FileOptions,
    ) -> VirtualHost {
        VirtualHost {
            listen,
            locations: vec![Location {
                path: "/".to_string(),
                directory: Some(directory),
                files,
                ..Location::default()
            }],
            ..VirtualHost::default()
        }
    }
}

/// What holds for one request.
pub struct Rules {
    pub root: Option<Arc<Root>>,
    pub files: FileOptions,
    /// Names in the path of the location.
    pub names: usize,
    /// The first name of its server that is no pattern; empty if there is none.
    pub host: String,
    pub redirect: Option<Redirect>,
    pub fixed: Option<Fixed>,
    pub fields: Vec<(String, String)>,
    pub cache: Option<Duration>,
    pub access: Access,
    pub types: Types,
    pub auth: Option<Auth>,
    pub rate: Option<u64>,
    pub error_pages: Arc<HashMap<u16, Arc<[u8]>>>,
    pub upstream: Option<Arc<Upstream>>,
}
