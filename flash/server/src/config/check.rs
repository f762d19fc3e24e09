// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a configuration has to be beyond its types.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use crate::access::Access;
use crate::address::Address;
use crate::http::response::OWN_FIELDS;
use crate::sites::{FileOptions, Location, TlsListen, VirtualHost};
use crate::tls::{Pair, Settings};
use crate::types::Types;

use super::access::{Said, SaidOfTypes};
use super::file::{Part, Server};
use super::values::{self, Time, Wrong};
use super::{auth, content, locations, plans};

/// The errors that have a page.
const ERRORS: [u16; 11] = [401, 403, 404, 405, 412, 416, 429, 500, 502, 503, 504];

pub(super) fn hosts(
    servers: &[Spanned<Server>],
    directory: &Path,
) -> Result<Vec<VirtualHost>, Wrong> {
    if servers.is_empty() {
        let what = "there is no server: add [[server]] with `listen` and `root`".to_string();
        return Err(Wrong { at: None, what });
    }
    let mut taken = HashMap::new();
    let mut hosts = Vec::new();
    for spanned in servers {
        let (span, server) = (spanned.span(), spanned.get_ref());
        let tls = tls(server, directory)?;
        if server.listen.is_empty() && tls.is_empty() {
            let what = "no address: set `listen`, as [\"127.0.0.1:8080\"], or `tls`";
            return Err(Wrong::at(span, what));
        }
        let listen = server
            .listen
            .iter()
            .map(|address| address.0.below(directory));
        let listen: Vec<Address> = listen.collect();
        // One server may show several certificates at an address.
        let mut all = listen.clone();
        for listen in &tls {
            if !all.contains(&listen.address) {
                all.push(listen.address.clone());
            }
        }
        let mut names = Vec::new();
        for name in &server.names {
            let (at, name) = (name.span(), host_name(name)?);
            for address in &all {
                let is_known = !address.is_new_each_time();
                if is_known && taken.insert((address.clone(), name.clone()), ()).is_some() {
                    let what =
                        format!("a server at {address} has the name `{name}` already: remove one");
                    return Err(Wrong::at(at, what));
                }
            }
            names.push(name);
        }
        let has_others = |address: &&Address| {
            let mut before = hosts.iter();
            before.any(|host: &VirtualHost| {
                let is_it = |listen: &TlsListen| listen.address == **address;
                host.listen.contains(address) || host.tls.iter().any(is_it)
            })
        };
        if let Some(address) = all.iter().find(has_others) {
            if names.is_empty() && !address.is_new_each_time() {
                let what = format!("another server is at {address}, so this one needs `names`");
                return Err(Wrong::at(span, what));
            }
        }
        let locations = locations(spanned, directory)?;
        hosts.push(VirtualHost {
            listen,
            tls,
            names,
            error_pages: error_pages(server, &locations)?,
            locations,
        });
    }
    Ok(hosts)
}

fn tls(server: &Server, directory: &Path) -> Result<Vec<TlsListen>, Wrong> {
    let mut found = Vec::new();
    for secure in &server.tls {
        let file = |path: &Spanned<PathBuf>| {
            let file = directory.join(path.get_ref());
            match file.is_file() {
                true => Ok(file),
                false => {
                    let what = format!("there is no file {}", file.display());
                    Err(Wrong::at(path.span(), what))
                }
            }
        };
        let (cert, key) = (file(&secure.cert)?, file(&secure.key)?);
        for address in secure.listen.get_ref() {
            if server.listen.contains(address) {
                let what = format!(
                    "{} is in this server's `listen`, without TLS, too",
                    address.0
                );
                return Err(Wrong::at(secure.listen.span(), what));
            }
            let (cert, key) = (cert.clone(), key.clone());
            found.push(TlsListen {
                address: address.0.below(directory),
                settings: Settings {
                    pairs: vec![Pair { cert, key }],
                },
            });
        }
    }
    Ok(found)
}

fn host_name(name: &Spanned<String>) -> Result<String, Wrong> {
    let lower = name.get_ref().to_ascii_lowercase();
    let plain = lower.strip_prefix("*.").unwrap_or(&lower);
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
    if plain.is_empty() || plain.starts_with('.') || !plain.bytes().all(is_fine) {
        let what =
            format!("`{lower}` is no name of a host: write `example.org` or `*.example.org`");
        return Err(Wrong::at(name.span(), what));
    }
    Ok(lower)
}

fn locations(spanned: &Spanned<Server>, below: &Path) -> Result<Vec<Location>, Wrong> {
    let server = spanned.get_ref();
    let root = server.root.as_ref();
    let span = root.map_or(spanned.span(), Spanned::span);
    let root = root.map(|root| values::directory(root, below, "root"));
    let whole = Location {
        path: "/".to_string(),
        is_exact: false,
        endings: Vec::new(),
        directory: root.transpose()?,
        files: FileOptions {
            index: match &server.index {
                Some(names) => content::index(names)?,
                None => FileOptions::default().index,
            },
            lists: server.list,
            precompressed: server.precompressed,
            dotfiles: server.dotfiles,
            ..FileOptions::default()
        },
        redirect: None,
        fixed: None,
        upstream: None,
        cache: server.cache.map(|time| time.0),
        fields: fields(&server.headers, &span)?,
        access: Said {
            allow: &server.allow,
            deny: &server.deny,
            methods: server.methods,
        }
        .over(&Access::default()),
        types: SaidOfTypes {
            types: &server.types,
            default_type: &server.default_type,
            charset: &server.charset,
        }
        .over(&Types::default()),
        auth: auth::over(&server.auth, None, below)?,
        rate: server.rate.map(|rate| rate.0),
    };
    let mut found: Vec<Location> = Vec::new();
    for part in &server.locations {
        can_have_application(server, part.get_ref())?;
        let location = location(part.get_ref(), &whole, below)?;
        if found.iter().any(|other| is_same(other, &location)) {
            let path = location.path.trim_matches('/');
            let what = format!("this server has the location `/{path}` already: remove one");
            return Err(Wrong::at(part.get_ref().path.span(), what));
        }
        found.push(location);
    }
    let is_for_all = |location: &Location| {
        let is_whole = !location.is_exact && location.endings.is_empty();
        is_whole && location.path.trim_matches('/').is_empty()
    };
    if !found.iter().any(is_for_all) {
        if whole.directory.is_none() {
            let what =
                "there is no `root` for files: set it, or add a location \"/\" that needs none";
            return Err(Wrong::at(span, what));
        }
        found.push(whole);
    }
    Ok(found)
}

/// The processes of an application write to the socket of the client, so there is something that they cannot do.
fn can_have_application(server: &Server, part: &Part) -> Result<(), Wrong> {
    let Some(application) = &part.application else {
        return Ok(());
    };
    if server.rate.is_some() || part.rate.is_some() {
        let what = "an `application` writes to the client's socket itself, so flash cannot limit its `rate`: remove \
                    one of them";
        return Err(Wrong::at(application.span(), what));
    }
    Ok(())
}

/// The second would never answer.
fn is_same(a: &Location, b: &Location) -> bool {
    let is_path = a.path.trim_matches('/') == b.path.trim_matches('/');
    let has_endings = |ending: &String| a.endings.contains(ending);
    let is_covered = match (a.endings.is_empty(), b.endings.is_empty()) {
        (true, true) => true,
        (false, false) => b.endings.iter().all(has_endings),
        _ => false,
    };
    is_path && a.is_exact == b.is_exact && is_covered
}

/// What a location does not say is as in its server.
fn location(part: &Part, whole: &Location, directory: &Path) -> Result<Location, Wrong> {
    let path = part.path.get_ref();
    let segments = path.trim_matches('/').split('/');
    let is_plain = |segment: &str| !matches!(segment, "" | "." | "..");
    if !path.starts_with('/') || (path != "/" && !segments.clone().all(is_plain)) {
        let what = format!("`{path}` is no path: write it as `/images`");
        return Err(Wrong::at(part.path.span(), what));
    }
    let own_root = match &part.root {
        Some(path) => Some(values::directory(path, directory, "root")?),
        None => whole.directory.clone(),
    };
    let mut location = Location {
        path: path.clone(),
        is_exact: false,
        endings: Vec::new(),
        fixed: None,
        upstream: plans::plan(part, directory, own_root.as_deref())?,
        directory: own_root,
        files: FileOptions {
            index: match &part.index {
                Some(names) => content::index(names)?,
                None => whole.files.index.clone(),
            },
            lists: part.list.unwrap_or(whole.files.lists),
            precompressed: part.precompressed.unwrap_or(whole.files.precompressed),
            dotfiles: part.dotfiles.unwrap_or(whole.files.dotfiles),
            ..FileOptions::default()
        },
        redirect: part.redirect.as_ref().map(content::redirect).transpose()?,
        cache: cache(part.cache, whole.cache),
        fields: match &part.headers {
            Some(table) => fields(table, &part.path.span())?,
            None => whole.fields.clone(),
        },
        access: Said {
            allow: &part.allow,
            deny: &part.deny,
            methods: part.methods,
        }
        .over(&whole.access),
        types: SaidOfTypes {
            types: &part.types,
            default_type: &part.default_type,
            charset: &part.charset,
        }
        .over(&whole.types),
        auth: auth::over(&part.auth, whole.auth.as_ref(), directory)?,
        rate: part.rate.map(|rate| rate.0).or(whole.rate),
    };
    locations::complete(part, &mut location, directory)?;
    Ok(location)
}

fn cache(own: Option<Time>, whole: Option<Duration>) -> Option<Duration> {
    own.map(|time| time.0).or(whole)
}

/// A `toml::Table` has no places, so an error names the field and the place of its owner.
fn fields(
    table: &toml::Table,
    at: &std::ops::Range<usize>,
) -> Result<Vec<(String, String)>, Wrong> {
    let mut fields = Vec::new();
    for (name, value) in table {
        let wrong = |why: &str| Wrong::at(at.clone(), format!("`headers`: `{name}` {why}"));
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(wrong("is no name of a field"));
        }
        if OWN_FIELDS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(wrong("is written by the server: remove it"));
        }
        let Some(value) = value.as_str() else {
            return Err(wrong("has a value that is no text: put it in quotes"));
        };
        if !value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            return Err(wrong(
                "has a value with characters that are not printable ASCII",
            ));
        }
        fields.push((name.clone(), value.to_string()));
    }
    Ok(fields)
}

fn error_pages(server: &Server, locations: &[Location]) -> Result<Vec<(u16, PathBuf)>, Wrong> {
    let mut pages = Vec::new();
    for (status, path) in &server.error_pages {
        let is_known = |known: &u16| known.to_string() == *status;
        let Some(known) = ERRORS.into_iter().find(|known| is_known(known)) else {
            let all = ERRORS.map(|known| known.to_string()).join(", ");
            let what = format!("`error_pages`: `{status}` is none of {all}");
            return Err(Wrong::at(path.span(), what));
        };
        let text = path.get_ref().to_string_lossy();
        let relative = text.trim_start_matches('/');
        if !text.starts_with('/') || relative.split('/').any(|segment| segment == "..") {
            let what = "`error_pages`: write a path below `root`, as \"/404.html\"";
            return Err(Wrong::at(path.span(), what));
        }
        let Some(file) = locations::file_of(locations, Path::new(relative)) else {
            let what = format!("`error_pages`: no location has the file {text}: set its `root`");
            return Err(Wrong::at(path.span(), what));
        };
        pages.push((known, file));
    }
    Ok(pages)
}
