// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is served where: the virtual hosts of an address, and the locations of each.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::access::users::UserFile;
use crate::access::{Access, Auth, AuthSettings};
use crate::address::Address;
use crate::files::Root;
use crate::tls;
use crate::types::Types;
use crate::upstream::application::host::Host;
use crate::upstream::{self, Upstream};

/// Bytes of an error page. They are in memory as long as the server runs.
const MAX_ERROR_PAGE: u64 = 256 << 10;

/// How files are found and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// The name that a directory shows.
    pub index: String,
    /// A directory without an index shows its names.
    pub lists: bool,
    /// A file may have compressed forms beside it: `.br`, `.zst` and `.gz`.
    pub precompressed: bool,
    /// Names that begin with a dot are served.
    pub dotfiles: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            index: "index.html".to_string(),
            lists: false,
            precompressed: false,
            dotfiles: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub to: String,
    pub status: u16,
}

/// What holds for the paths below one, before its directory is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// As in a URL. It matches whole segments: `/a` stands for `/a` and `/a/b`, not for `/ab`.
    pub path: String,
    pub directory: PathBuf,
    pub files: FileOptions,
    pub redirect: Option<Redirect>,
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

/// An address at which connections are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    pub address: Address,
    pub tls: Option<tls::Settings>,
}

impl Listen {
    fn is_at(&self, address: &Address) -> bool {
        !address.is_new_each_time() && self.address == *address
    }
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
                directory,
                files,
                ..Location::default()
            }],
            ..VirtualHost::default()
        }
    }
}

impl VirtualHost {
    fn listens(&self) -> impl Iterator<Item = Listen> + '_ {
        let plain = self.listen.iter().map(|address| Listen {
            address: address.clone(),
            tls: None,
        });
        plain.chain(self.tls.iter().map(|listen| Listen {
            address: listen.address.clone(),
            tls: Some(listen.settings.clone()),
        }))
    }
}

/// What holds for one request.
pub struct Rules {
    pub root: Arc<Root>,
    pub files: FileOptions,
    pub redirect: Option<Redirect>,
    pub fields: Vec<(String, String)>,
    pub cache: Option<Duration>,
    pub access: Access,
    pub types: Types,
    pub auth: Option<Auth>,
    pub rate: Option<u64>,
    pub error_pages: Arc<HashMap<u16, Vec<u8>>>,
    pub upstream: Option<Arc<Upstream>>,
}

/// A location's path without slashes at its ends, and its rules; the longest path comes first.
type Locations = Vec<(Vec<u8>, Arc<Rules>)>;

/// The virtual hosts of one address.
#[derive(Default)]
pub struct Hosts {
    locations: Vec<Locations>,
    exact: HashMap<String, usize>,
    /// `.example.org`, the longest first.
    below: Vec<(String, usize)>,
}

/// The addresses of all hosts, in the order in which they are named first.
///
/// # Errors
///
/// An address has TLS for one host and not for another.
pub fn listens(hosts: &[VirtualHost]) -> Result<Vec<Listen>> {
    let mut found: Vec<Listen> = Vec::new();
    for listen in hosts.iter().flat_map(VirtualHost::listens) {
        let Some(known) = found.iter_mut().find(|known| known.is_at(&listen.address)) else {
            found.push(listen);
            continue;
        };
        match (&mut known.tls, listen.tls) {
            (None, None) => {}
            (Some(known), Some(more)) => {
                for pair in more.pairs {
                    if !known.pairs.contains(&pair) {
                        known.pairs.push(pair);
                    }
                }
            }
            _ => bail!(
                "{} is an address with TLS for one server and without it for another",
                listen.address
            ),
        }
    }
    Ok(found)
}

/// The hosts of each of these addresses, which are those of [`listens`], and their upstreams, each once.
///
/// # Errors
///
/// A directory, an error page or a file of users cannot be opened, or a name of an upstream has no address; the error names
/// it. Two hosts have one name at one address.
pub fn open(
    hosts: &[VirtualHost],
    listens: &[Listen],
    before: &Before,
) -> Result<(Vec<Hosts>, Vec<Arc<Upstream>>)> {
    let mut opened = Opened {
        before,
        roots: HashMap::new(),
        users: HashMap::new(),
        upstreams: Vec::new(),
    };
    let mut found: Vec<Hosts> = listens.iter().map(|_| Hosts::default()).collect();
    // Where those with port 0 are, which are all different.
    let is_new = |listen: &&(usize, &Listen)| listen.1.address.is_new_each_time();
    let numbered: Vec<(usize, &Listen)> = listens.iter().enumerate().collect();
    let mut new = numbered.iter().filter(is_new);
    for host in hosts {
        let locations = open_locations(host, &mut opened)?;
        let mut seen = HashSet::new();
        for listen in host.listens() {
            let is_it = |its: &&(usize, &Listen)| its.1.is_at(&listen.address);
            let number = match listen.address.is_new_each_time() {
                true => new.next(),
                false => numbered.iter().find(is_it),
            };
            let (number, _) = number.context("an address that is not listened at")?;
            if seen.insert(*number) {
                found[*number].add(host, locations.clone())?;
            }
        }
    }
    Ok((found, opened.upstreams))
}

/// What goes on from the earlier configuration, where it is the same.
#[derive(Default)]
pub struct Before {
    pub users: Vec<Arc<UserFile>>,
    pub upstreams: Vec<Arc<Upstream>>,
    /// Starts applications. `None`: none run.
    pub applications: Option<Arc<Host>>,
}

/// What several locations may have in common.
struct Opened<'a> {
    before: &'a Before,
    roots: HashMap<PathBuf, Arc<Root>>,
    users: HashMap<PathBuf, Arc<UserFile>>,
    upstreams: Vec<Arc<Upstream>>,
}

fn open_auth(auth: &AuthSettings, opened: &mut Opened<'_>) -> Result<Auth> {
    let file = match opened.users.get(&auth.file) {
        Some(file) => Arc::clone(file),
        None => {
            let file = Arc::new(UserFile::open(&auth.file, &opened.before.users)?);
            opened.users.insert(auth.file.clone(), Arc::clone(&file));
            file
        }
    };
    let realm = auth.realm.clone();
    Ok(Auth { realm, file })
}

fn open_upstream(plan: &upstream::Plan, opened: &mut Opened<'_>) -> Result<Arc<Upstream>> {
    let is_it = |known: &&Arc<Upstream>| known.plan == *plan;
    if let Some(known) = opened.upstreams.iter().find(is_it) {
        return Ok(Arc::clone(known));
    }
    let upstream = match opened.before.upstreams.iter().find(is_it) {
        Some(known) => {
            known.resolve_again();
            Arc::clone(known)
        }
        None => Arc::new(Upstream::open(plan, opened.before.applications.as_deref())?),
    };
    opened.upstreams.push(Arc::clone(&upstream));
    Ok(upstream)
}

/// The files with users of all hosts, each once.
pub fn user_files(hosts: &[Hosts]) -> Vec<Arc<UserFile>> {
    let locations = hosts
        .iter()
        .flat_map(|hosts| hosts.locations.iter().flatten());
    let mut found: Vec<Arc<UserFile>> = Vec::new();
    for auth in locations.filter_map(|(_, rules)| rules.auth.as_ref()) {
        if !found.iter().any(|file| Arc::ptr_eq(file, &auth.file)) {
            found.push(Arc::clone(&auth.file));
        }
    }
    found
}

/// The roots of all locations; several may have the same.
pub fn roots(hosts: &[Hosts]) -> impl Iterator<Item = &Root> {
    let locations = hosts
        .iter()
        .flat_map(|hosts| hosts.locations.iter().flatten());
    locations.map(|(_, rules)| &*rules.root)
}

/// The devices of all roots, each once.
pub fn devices(hosts: &[Hosts]) -> Vec<u64> {
    let locations = hosts
        .iter()
        .flat_map(|hosts| hosts.locations.iter().flatten());
    let mut found = Vec::new();
    for (_, rules) in locations {
        if !found.contains(&rules.root.device) {
            found.push(rules.root.device);
        }
    }
    found
}

fn open_locations(host: &VirtualHost, opened: &mut Opened<'_>) -> Result<Locations> {
    let mut pages = HashMap::new();
    for (status, path) in &host.error_pages {
        pages.insert(*status, error_page(path)?);
    }
    let pages = Arc::new(pages);
    let mut locations = Vec::new();
    for location in &host.locations {
        let root = match opened.roots.get(&location.directory) {
            Some(root) => Arc::clone(root),
            None => {
                let root = Arc::new(Root::open(&location.directory)?);
                opened
                    .roots
                    .insert(location.directory.clone(), Arc::clone(&root));
                root
            }
        };
        let rules = Rules {
            root,
            files: location.files.clone(),
            redirect: location.redirect.clone(),
            fields: location.fields.clone(),
            cache: location.cache,
            access: location.access.clone(),
            types: location.types.clone(),
            auth: location
                .auth
                .as_ref()
                .map(|auth| open_auth(auth, opened))
                .transpose()?,
            rate: location.rate,
            error_pages: Arc::clone(&pages),
            upstream: match &location.upstream {
                Some(plan) => Some(open_upstream(plan, opened)?),
                None => None,
            },
        };
        let path = location.path.trim_matches('/').as_bytes().to_vec();
        locations.push((path, Arc::new(rules)));
    }
    locations.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    Ok(locations)
}

/// Error pages are read once, so no error can wait for a disk or lead to another error.
fn error_page(path: &std::path::Path) -> Result<Vec<u8>> {
    let name = || format!("cannot read the error page {}", path.display());
    let about = std::fs::metadata(path).with_context(name)?;
    if !about.is_file() || about.len() > MAX_ERROR_PAGE {
        let most = kit_units::bytes(MAX_ERROR_PAGE);
        bail!(
            "the error page {} is no file of at most {most}",
            path.display()
        );
    }
    std::fs::read(path).with_context(name)
}

impl Hosts {
    fn add(&mut self, host: &VirtualHost, locations: Locations) -> Result<()> {
        let number = self.locations.len();
        self.locations.push(locations);
        for name in &host.names {
            let is_new = match name.strip_prefix('*') {
                None => self.exact.insert(name.clone(), number).is_none(),
                Some(end) => {
                    let is_new = self.below.iter().all(|(its, _)| its != end);
                    self.below.push((end.to_string(), number));
                    is_new
                }
            };
            if !is_new {
                bail!("two servers have the name {name} at one address");
            }
        }
        self.below
            .sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
        Ok(())
    }

    /// `host`: in lower case, without a port. A name that no host has is the first host's.
    pub fn find(&self, host: &str, path: &[u8]) -> Option<&Arc<Rules>> {
        let wild = || {
            let mut below = self.below.iter();
            below.find(|(end, _)| host.len() > end.len() && host.ends_with(end.as_str()))
        };
        let number = match self.exact.get(host) {
            Some(number) => *number,
            None => wild().map_or(0, |(_, number)| *number),
        };
        let mut locations = self.locations.get(number)?.iter();
        let (_, rules) = locations.find(|(prefix, _)| is_below(path, prefix))?;
        Some(rules)
    }
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

#[cfg(test)]
mod tests;
