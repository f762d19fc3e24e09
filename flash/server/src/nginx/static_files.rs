// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations that files answer, and what answers there if no file does.

use std::path::{Path, PathBuf};

use super::handlers::upstream;
use super::notes::Notes;
use super::scope::{Scope, OF_SERVER};
use super::site::{table_of, Location, Place, Site};
use super::syntax::Directive;
use super::table::Table;
use super::upstreams;

/// The root that holds, as an absolute path.
pub fn root_of(scope: &Scope<'_>, prefix: &Path) -> Option<PathBuf> {
    let root = scope.one("root")?;
    (!root.word(0).contains('$')).then(|| prefix.join(root.word(0)))
}

pub fn files(
    directive: &Directive,
    scope: &Scope<'_>,
    site: &Site<'_>,
    made: &mut Location,
    notes: &mut Notes,
) {
    made.has_files = true;
    let alias = scope.own_one("alias");
    if let Some(alias) = alias {
        aliased(alias, site, made, notes);
    } else if let Some(root) = scope.one_from(OF_SERVER, "root") {
        match root_of(scope, site.prefix) {
            Some(path) => made.table.set("root", path.display().to_string()),
            None => {
                notes.left_out(
                    root,
                    "a root is the same for all requests: its paths are answered with 404",
                );
                made.table.set("answer", table_of(404).inline());
            }
        }
    }
    if made.table.has("answer") {
        made.has_files = false;
        return;
    }
    let tried = scope.own_one("try_files");
    let fallback = tried.and_then(|tried| fallback(tried, site, made, notes));
    if let Some(Fallback::Location(name, settings)) = &fallback {
        match settings {
            Some(settings) => {
                made.table.extend(settings.clone());
                made.table.set("files_first", true);
            }
            None => notes.left_out(
                tried.unwrap_or(directive),
                format!(
                    "there is no {name} that flash can have: what is no file is answered with 404"
                ),
            ),
        }
        return;
    }
    let takes_scripts = !made.is_final || made.place.is_exact;
    let is_plain = takes_scripts && alias.is_none() && made.place.endings.is_empty();
    let is_script = matches!(&fallback, Some(Fallback::File(file)) if file.ends_with(".php"));
    if let (Some((pass, of_scripts)), true) = (&site.scripts, is_plain || is_script) {
        if let Some(fastcgi) = upstreams::fastcgi(of_scripts, pass, site.groups, false, notes) {
            made.table.set("fastcgi", fastcgi.inline());
            let limits = upstreams::limits(of_scripts, "fastcgi", site.groups, pass.word(0), notes);
            made.table.set("upstream", limits);
        }
    }
    if let Some(Fallback::File(file)) = fallback {
        made.table.set("fallback", file);
    }
}

fn aliased(alias: &Directive, site: &Site<'_>, made: &mut Location, notes: &mut Notes) {
    let path = site.prefix.join(alias.word(0));
    let name = made.place.path.trim_matches('/');
    let is_file = !alias.word(0).ends_with('/') && name.contains('.') && !path.is_dir();
    let (parent, its) = (path.parent(), path.file_name().and_then(|its| its.to_str()));
    match (is_file, parent, its) {
        _ if alias.word(0).contains('$') => {
            notes.left_out(
                alias,
                "a directory is the same for all requests: its paths are answered with 404",
            );
            made.table.set("answer", table_of(404).inline());
        }
        // One file: its own name below its directory.
        (true, Some(parent), Some(its)) if its == name => {
            made.table.set("root", parent.display().to_string())
        }
        (true, _, _) => {
            notes.left_out(
                alias,
                "a file has the name that it is asked for by: its path is answered with 404",
            );
            made.table.set("answer", table_of(404).inline());
        }
        (false, _, _) => {
            let text = path.display().to_string();
            made.table.set("alias", text.trim_end_matches('/'));
        }
    }
}

enum Fallback {
    /// Below the root.
    File(String),
    /// A named location, and what it has for a location of flash.
    Location(String, Option<Table>),
}

fn fallback(
    tried: &Directive,
    site: &Site<'_>,
    made: &Location,
    notes: &mut Notes,
) -> Option<Fallback> {
    let (last, before) = tried.words.split_last()?;
    let mut has_name = false;
    for word in before {
        match word.as_str() {
            "$uri" | "$uri/" | "$fastcgi_script_name" => has_name = true,
            "$uri/index.html" | "$uri/index.htm" | "$uri/index.php" | "$document_root$uri" => {}
            other => {
                notes.in_part(tried, format!("`{other}` is not tried"));
            }
        }
    }
    if !has_name {
        notes.in_part(
            tried,
            "what has the name that was asked for is looked for first",
        );
    }
    if let Some(status) = last.strip_prefix('=') {
        if status != "404" {
            notes.in_part(tried, "what is not there is answered with 404");
        }
        return None;
    }
    if last.starts_with('@') {
        let scope = site.named.iter().find(|(its, _)| *its == last.as_str());
        return match scope {
            Some((_, scope)) => of_named(last, scope, site, notes),
            None => Some(Fallback::Location(last.clone(), None)),
        };
    }
    let (path, query) = last.split_once('?').unwrap_or((last, ""));
    let path = path.trim_end_matches("$is_args$args");
    if !matches!(query, "" | "$args" | "$query_string" | "$is_args$args") {
        notes.in_part(
            tried,
            format!("the script gets the client's query, and not `{query}`"),
        );
    }
    if path.contains('$') || !path.starts_with('/') || path.ends_with('/') {
        notes.in_part(
            tried,
            format!("`{path}` is not tried: what is not there is answered with 404"),
        );
        return None;
    }
    // Below an alias, the path of the location is no part of the file's name.
    let path = match made.table.has("alias") {
        true => {
            let rest = path.strip_prefix(made.place.path.trim_end_matches('/'));
            rest.unwrap_or(path)
        }
        false => path,
    };
    Some(Fallback::File(path.to_string()))
}

fn of_named(name: &str, scope: &Scope<'_>, site: &Site<'_>, notes: &mut Notes) -> Option<Fallback> {
    // `rewrite ^(.*)$ /index.php?q=$1 last` hands the request to a script.
    let script = scope.own().iter().find_map(|one| {
        let to = one.word(1).split('?').next().unwrap_or_default();
        let is_script = one.name == "rewrite" && to.starts_with('/') && to.ends_with(".php");
        (is_script && !to.contains('$')).then_some((one, to))
    });
    if let Some((rewrite, to)) = script {
        if rewrite.word(1).contains("$1") {
            notes.in_part(
                rewrite,
                "the script gets the client's query, and the path as REQUEST_URI",
            );
        }
        return Some(Fallback::File(to.to_string()));
    }
    let mut named = Location {
        place: Place::below("/"),
        is_final: false,
        table: Table::default(),
        has_files: false,
    };
    let found = upstream(scope, site, &mut named, notes).then_some(named.table);
    let settings = found.filter(|table| !table.has("answer"));
    Some(Fallback::Location(name.to_string(), settings))
}
