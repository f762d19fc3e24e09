// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a configuration has to be beyond its types.

use std::collections::HashMap;

use crate::access::Access;
use crate::address::Address;
use crate::types::Types;

use super::access::{Said, SaidOfTypes};
use super::auth;
use super::{
    Duration, FileOptions, Location, Pair, Part, Path, PathBuf, Redirect, Server, Settings,
    Spanned, Time, TlsListen, VirtualHost, Wrong,
};

/// Fields that the server writes itself; a second one would make an answer invalid or ambiguous.
const OWN: [&str; 13] = [
    "accept-ranges",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "location",
    "server",
    "transfer-encoding",
    "vary",
];
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];
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
        hosts.push(VirtualHost {
            listen,
            tls,
            names,
            locations: locations(server, directory)?,
            error_pages: error_pages(server)?
                .into_iter()
                .map(|(status, path)| (status, directory.join(server.root.get_ref()).join(path)))
                .collect(),
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

fn root(path: &Spanned<PathBuf>, directory: &Path) -> Result<PathBuf, Wrong> {
    let root = directory.join(path.get_ref());
    if !root.is_dir() {
        let what = format!(
            "there is no directory {}: create it, or correct `root`",
            root.display()
        );
        return Err(Wrong::at(path.span(), what));
    }
    Ok(root)
}

fn index(name: &Spanned<String>) -> Result<String, Wrong> {
    let text = name.get_ref();
    if text.is_empty() || text.contains(['/', '\0']) {
        let what = "`index` is the name of a file, without a slash";
        return Err(Wrong::at(name.span(), what));
    }
    Ok(text.clone())
}

fn locations(server: &Server, directory: &Path) -> Result<Vec<Location>, Wrong> {
    let whole = Location {
        path: "/".to_string(),
        directory: root(&server.root, directory)?,
        files: FileOptions {
            index: match &server.index {
                Some(name) => index(name)?,
                None => FileOptions::default().index,
            },
            lists: server.list,
            precompressed: server.precompressed,
            dotfiles: server.dotfiles,
        },
        redirect: None,
        upstream: None,
        cache: server.cache.map(|time| time.0),
        fields: fields(&server.headers, &server.root.span())?,
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
        auth: auth::over(&server.auth, None, directory)?,
        rate: server.rate.map(|rate| rate.0),
    };
    let mut found: Vec<Location> = Vec::new();
    for part in &server.locations {
        can_have_application(server, part.get_ref())?;
        let location = location(part.get_ref(), &whole, directory)?;
        let path = location.path.trim_matches('/');
        if found
            .iter()
            .any(|other| other.path.trim_matches('/') == path)
        {
            let what = format!("this server has the location `/{path}` already: remove one");
            return Err(Wrong::at(part.get_ref().path.span(), what));
        }
        found.push(location);
    }
    if !found
        .iter()
        .any(|location| location.path.trim_matches('/').is_empty())
    {
        found.push(whole);
    }
    Ok(found)
}

/// The processes of an application write to the socket of the client, so there is something that they cannot do.
fn can_have_application(server: &Server, part: &Part) -> Result<(), Wrong> {
    let Some(application) = &part.application else {
        return Ok(());
    };
    if !server.tls.is_empty() {
        let what = "an `application` writes to the client's socket itself, and cannot encrypt: this server has `tls`. \
                    Give the location to a server without `tls`, or use `proxy` or `fastcgi`";
        return Err(Wrong::at(application.span(), what));
    }
    if server.rate.is_some() || part.rate.is_some() {
        let what = "an `application` writes to the client's socket itself, so flash cannot limit its `rate`: remove \
                    one of them";
        return Err(Wrong::at(application.span(), what));
    }
    Ok(())
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
        Some(path) => root(path, directory)?,
        None => whole.directory.clone(),
    };
    Ok(Location {
        path: path.clone(),
        upstream: super::upstream::plan(part, directory, &own_root)?,
        directory: own_root,
        files: FileOptions {
            index: match &part.index {
                Some(name) => index(name)?,
                None => whole.files.index.clone(),
            },
            lists: part.list.unwrap_or(whole.files.lists),
            precompressed: part.precompressed.unwrap_or(whole.files.precompressed),
            dotfiles: part.dotfiles.unwrap_or(whole.files.dotfiles),
        },
        redirect: part.redirect.as_ref().map(redirect).transpose()?,
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
    })
}

fn cache(own: Option<Time>, whole: Option<Duration>) -> Option<Duration> {
    own.map(|time| time.0).or(whole)
}

fn redirect(to: &Spanned<super::To>) -> Result<Redirect, Wrong> {
    let (span, to) = (to.span(), to.get_ref());
    let begins = ["/", "http://", "https://"];
    let is_target = begins.iter().any(|begin| to.to.starts_with(begin))
        && to.to.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_target {
        let what = "`to` is a path that begins with a slash or a URL, without spaces";
        return Err(Wrong::at(span, what));
    }
    let status = to.status.unwrap_or(301);
    if !REDIRECTS.contains(&status) {
        let what = format!("{status} is no redirect: `status` is one of 301, 302, 303, 307, 308");
        return Err(Wrong::at(span, what));
    }
    let to = to.to.clone();
    Ok(Redirect { to, status })
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
        if OWN.contains(&name.to_ascii_lowercase().as_str()) {
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

fn error_pages(server: &Server) -> Result<Vec<(u16, PathBuf)>, Wrong> {
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
        pages.push((known, PathBuf::from(relative)));
    }
    Ok(pages)
}
