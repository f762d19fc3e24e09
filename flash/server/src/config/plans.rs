// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upstream of a location, from what the configuration says of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::application::Application;
use super::file::Part;
use super::upstream::{Cgi, FastCgi, ForwardedName, HostName, Limits, Proxy, Responder, Web};
use super::values::{Time, Wrong};
use crate::http::method::is_token;
use crate::template::Template;
use crate::upstream::http::{is_of_hop, Forwarded, Host, Options};
use crate::upstream::{fastcgi, scripts, Place, Plan, Protocol, Settings};

/// Scripts of a location at the same time, and how long each may take.
const PROCESSES: usize = 16;
const SCRIPT_MS: u64 = 30_000;

/// The upstream of a location, if it has one. `directory`: where relative paths begin; `root`: of the location.
pub(super) fn plan(
    part: &Part,
    directory: &Path,
    root: Option<&Path>,
) -> Result<Option<Plan>, Wrong> {
    let settings = settings(part.upstream.as_ref().map(Spanned::get_ref));
    let spans = [
        part.redirect.as_ref().map(Spanned::span),
        part.answer.as_ref().map(Spanned::span),
        part.proxy.as_ref().map(Spanned::span),
        part.fastcgi.as_ref().map(Spanned::span),
        part.cgi.as_ref().map(Spanned::span),
        part.application.as_ref().map(Spanned::span),
    ];
    if let Some(second) = spans.into_iter().flatten().nth(1) {
        let what =
            "a location has one of `redirect`, `answer`, `proxy`, `fastcgi`, `cgi` and `application`: remove the others";
        return Err(Wrong::at(second, what));
    }
    let (protocol, to) = if let Some(proxy) = &part.proxy {
        http(part, proxy)?
    } else if let Some(fastcgi) = &part.fastcgi {
        fast_cgi(part, fastcgi, directory, root)?
    } else if let Some(cgi) = &part.cgi {
        let settings = Settings {
            connections: cgi.get_ref().processes.map_or(PROCESSES, |number| number.0),
            ..settings
        };
        return Ok(Some(Plan {
            protocol: of_scripts(part, cgi, directory)?,
            to: vec![Place::Script],
            settings,
        }));
    } else if let Some(application) = &part.application {
        return of_application(part, application, directory).map(Some);
    } else if let Some(limits) = &part.upstream {
        let what =
            "`upstream` has the limits of `proxy`, `fastcgi` or `cgi`, which is not there: add it";
        return Err(Wrong::at(limits.span(), what));
    } else {
        return Ok(None);
    };
    Ok(Some(Plan {
        protocol,
        to,
        settings,
    }))
}

fn http(part: &Part, spanned: &Spanned<Proxy>) -> Result<(Protocol, Vec<Place>), Wrong> {
    let (span, Proxy(table)) = (spanned.span(), spanned.get_ref());
    if let Some(path) = &table.path {
        if !path.starts_with('/')
            || !path.bytes().all(|byte| byte.is_ascii_graphic())
            || path.contains(['?', '#'])
        {
            let what =
                "`proxy`: `path` begins with a slash, as \"/v1\": it replaces the location's path";
            return Err(Wrong::at(span, what));
        }
    }
    let mut fields = Vec::new();
    for (name, value) in &table.headers {
        let wrong =
            |why: &str| Wrong::at(span.clone(), format!("`proxy`: `headers`: `{name}` {why}"));
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(wrong("is no name of a field"));
        }
        if is_of_hop(name) {
            return Err(wrong("is written by the server: remove it"));
        }
        if !value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            return Err(wrong(
                "has a value with characters that are not printable ASCII",
            ));
        }
        let value =
            Template::parse(value).map_err(|why| wrong(&format!("has a wrong value: {why}")))?;
        fields.push((name.clone(), value));
    }
    let names = part
        .path
        .get_ref()
        .split('/')
        .filter(|name| !name.is_empty());
    let options = Options {
        host: match &table.host {
            Some(HostName(name)) => Host::Name(name.clone()),
            None => Host::Client,
        },
        forwarded: match table.forwarded {
            ForwardedName::Separate => Forwarded::Separate,
            ForwardedName::Standard => Forwarded::Standard,
            ForwardedName::None => Forwarded::None,
        },
        trusts_client: table.trust_client,
        path: table.path.clone(),
        names: names.count(),
        fields,
    };
    let to = table.to.0.iter().map(|Web(place)| place.clone());
    Ok((Protocol::Http(options), to.collect()))
}

fn fast_cgi(
    part: &Part,
    spanned: &Spanned<FastCgi>,
    directory: &Path,
    root: Option<&Path>,
) -> Result<(Protocol, Vec<Place>), Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    let wrong = |what: &str| Err(Wrong::at(span.clone(), what));
    if table.application && (table.index.is_some() || table.ending.is_some()) {
        return wrong("`fastcgi`: an `application` has no scripts: remove `index` and `ending`");
    }
    let ending = table.ending.clone().unwrap_or(".php".to_string());
    let usual = format!("index{ending}");
    let names = table.index.as_ref();
    if names.is_some_and(|names| !names.are_plain()) {
        return wrong(
            "`fastcgi`: `index` is the name of a file, without a slash, or a list of such names",
        );
    }
    let index = names
        .and_then(|names| names.all.first().cloned())
        .unwrap_or(usual);
    if !ending.starts_with('.') || ending.contains('/') {
        return wrong("`fastcgi`: `ending` is the end of a name, as \".php\"");
    }
    let variables = params(&table.params, &span)?;
    let named = table.root.as_ref().map(|root| directory.join(root));
    // The program may see other directories than the server: it is not looked for.
    let root = match (named.or(root.map(Path::to_path_buf)), table.application) {
        (Some(root), _) => root,
        (None, true) => PathBuf::new(),
        (None, false) => return wrong("`fastcgi`: there is no `root` for the scripts: set it"),
    };
    let root = std::path::absolute(&root).unwrap_or(root);
    let options = fastcgi::Options {
        root,
        location: part.path.get_ref().trim_matches('/').as_bytes().to_vec(),
        scripts: (!table.application).then_some((ending, index)),
        takes_chunked: table.chunked,
        variables,
    };
    let to = table.to.0.iter().map(|Responder(place)| place.clone());
    Ok((Protocol::FastCgi(options), to.collect()))
}

fn of_scripts(part: &Part, spanned: &Spanned<Cgi>, directory: &Path) -> Result<Protocol, Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    let root = directory.join(&table.root);
    let Some(root) = root.canonicalize().ok().filter(|root| root.is_dir()) else {
        let root = root.display();
        let what = format!("`cgi`: there is no directory {root}: create it, or correct `root`");
        return Err(Wrong::at(span, what));
    };
    let ms = |time: Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
    Ok(Protocol::Cgi(scripts::Options {
        root,
        location: part.path.get_ref().trim_matches('/').as_bytes().to_vec(),
        time_ms: table.time.map_or(SCRIPT_MS, ms),
        output: table.output.as_ref().map_or(u64::MAX, |bytes| bytes.0),
        takes_chunked: table.chunked,
        variables: params(&table.params, &span)?,
    }))
}

fn of_application(
    part: &Part,
    spanned: &Spanned<Application>,
    directory: &Path,
) -> Result<Plan, Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    if let Some(limits) = &part.upstream {
        let what = "an `application` has its limits in its own table: remove `upstream`";
        return Err(Wrong::at(limits.span(), what));
    }
    let variables = params(&table.params, &span)?;
    let options = table.options(part.path.get_ref(), directory, variables);
    let wrong = |what: String| Wrong::at(span, format!("`application`: {what}"));
    Ok(Plan {
        protocol: Protocol::Application(options.map_err(wrong)?),
        to: vec![Place::Application],
        settings: Settings::default(),
    })
}

fn params(
    table: &BTreeMap<String, String>,
    span: &std::ops::Range<usize>,
) -> Result<Vec<(String, String)>, Wrong> {
    for (name, value) in table {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            let what = format!(
                "`params`: `{name}` is no name of a variable: it has letters, digits and `_`"
            );
            return Err(Wrong::at(span.clone(), what));
        }
        if value.contains('\0') {
            let what = format!("`params`: the value of `{name}` has a zero byte: remove it");
            return Err(Wrong::at(span.clone(), what));
        }
    }
    Ok(table.clone().into_iter().collect())
}

fn settings(limits: Option<&Limits>) -> Settings {
    let usual = Settings::default();
    let Some(limits) = limits else {
        return usual;
    };
    let ms = |time: Option<Time>, usual| {
        time.map_or(usual, |time| {
            u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX / 2)
        })
    };
    Settings {
        connections: limits
            .connections
            .map_or(usual.connections, |number| number.0),
        buffer: limits.buffer.as_ref().map_or(usual.buffer, |size| size.0),
        connect_ms: ms(limits.connect, usual.connect_ms),
        send_ms: ms(limits.send, usual.send_ms),
        read_ms: ms(limits.read, usual.read_ms),
        tunnel_ms: ms(limits.tunnel, usual.tunnel_ms),
        idle_ms: ms(limits.idle, usual.idle_ms),
        failures: limits
            .failures
            .map_or(usual.failures, |number| number.0 as u32),
        down_ms: ms(limits.down, usual.down_ms),
        body: limits.body.as_ref().map_or(usual.body, |size| size.0),
    }
}
