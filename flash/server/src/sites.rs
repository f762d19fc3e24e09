// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is served where: the virtual hosts of an address, and the locations of each.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{bail, Context, Result};

use crate::access::users::UserFile;
use crate::access::{Auth, AuthSettings};
use crate::address::Address;
use crate::files::Root;
use crate::tls;
use crate::upstream::application::host::Host;
use crate::upstream::{self, Upstream};

mod hosts;
mod rules;

pub use hosts::Hosts;
use hosts::{Locations, Place};
pub use rules::{FileOptions, Fixed, Location, Redirect, Rules, TlsListen, VirtualHost};

/// Bytes of an error page. They are in memory as long as the server runs.
const MAX_ERROR_PAGE: u64 = 256 << 10;

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

fn listens_of(host: &VirtualHost) -> impl Iterator<Item = Listen> + '_ {
    let plain = host.listen.iter().map(|address| Listen {
        address: address.clone(),
        tls: None,
    });
    plain.chain(host.tls.iter().map(|listen| Listen {
        address: listen.address.clone(),
        tls: Some(listen.settings.clone()),
    }))
}

/// The addresses of all hosts, in the order in which they are named first.
///
/// # Errors
///
/// An address has TLS for one host and not for another.
pub fn listens(hosts: &[VirtualHost]) -> Result<Vec<Listen>> {
    let mut found: Vec<Listen> = Vec::new();
    for listen in hosts.iter().flat_map(listens_of) {
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
        for listen in listens_of(host) {
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
    let locations = hosts.iter().flat_map(Hosts::rules);
    let mut found: Vec<Arc<UserFile>> = Vec::new();
    for auth in locations.filter_map(|rules| rules.auth.as_ref()) {
        if !found.iter().any(|file| Arc::ptr_eq(file, &auth.file)) {
            found.push(Arc::clone(&auth.file));
        }
    }
    found
}

/// The devices of all roots, each once.
pub fn devices(hosts: &[Hosts]) -> Vec<u64> {
    let locations = hosts.iter().flat_map(Hosts::rules);
    let mut found = Vec::new();
    for root in locations.filter_map(|rules| rules.root.as_ref()) {
        if !found.contains(&root.device) {
            found.push(root.device);
        }
    }
    found
}

fn open_locations(host: &VirtualHost, opened: &mut Opened<'_>) -> Result<Locations> {
    let mut pages = HashMap::new();
    for (status, path) in &host.error_pages {
        pages.insert(*status, error_page(path)?.into());
    }
    let pages = Arc::new(pages);
    let name = host.names.iter().find(|name| !name.starts_with('*'));
    let mut locations = Vec::new();
    for location in &host.locations {
        let root = location.directory.as_ref();
        let root = root.map(|directory| open_root(directory, opened));
        let rules = Rules {
            root: root.transpose()?,
            files: location.files.clone(),
            names: hosts::names(&location.path).count(),
            host: name.cloned().unwrap_or_default(),
            redirect: location.redirect.clone(),
            fixed: location.fixed.clone(),
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
        locations.push(Place::of(location, Arc::new(rules)));
    }
    hosts::sort(&mut locations);
    Ok(locations)
}

fn open_root(directory: &PathBuf, opened: &mut Opened<'_>) -> Result<Arc<Root>> {
    if let Some(root) = opened.roots.get(directory) {
        return Ok(Arc::clone(root));
    }
    let root = Arc::new(Root::open(directory)?);
    opened.roots.insert(directory.clone(), Arc::clone(&root));
    Ok(root)
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

#[cfg(test)]
mod tests;
