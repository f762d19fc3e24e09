// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locations of a server: nginx takes the first regular expression that fits, and otherwise the longest path.

use super::answers::{returned, rewritten};
use super::location::location;
use super::notes::Notes;
use super::pattern::{shape, Shape};
use super::scope::Scope;
use super::site::{
    is_plain, is_whole, kind, protects, table_of, whole, Location, Place, Server, Site,
};
use super::static_files::files;
use super::syntax::Directive;
use super::table::Table;

/// The location that has scripts run.
pub fn scripts<'a>(
    all: &[(&'a Directive, Scope<'a>)],
    notes: &mut Notes,
) -> Option<(&'a Directive, Scope<'a>)> {
    let mut found = None;
    for (one, scope) in all {
        let (modifier, expression) = kind(one);
        let Some(pass) = scope
            .own_one("fastcgi_pass")
            .filter(|_| modifier.starts_with('~'))
        else {
            continue;
        };
        let (below, endings) = match shape(expression) {
            Some(Shape::Script { below, endings } | Shape::Ending { below, endings }) => {
                (below, endings)
            }
            Some(Shape::Exact(paths)) => ("/".to_string(), paths),
            _ => (String::new(), Vec::new()),
        };
        let is_php = !endings.is_empty() && endings.iter().all(|ending| ending.contains(".ph"));
        if !is_php || below != "/" || found.is_some() {
            notes.left_out(one, "its scripts are not run: they are run by one FastCGI program, by names that end in .php");
            continue;
        }
        if !endings.iter().any(|ending| ending == ".php") {
            notes.unprotected(
                one,
                "all scripts whose names end in .php are run, and not these alone",
            );
        } else if endings.len() > 1 {
            notes.in_part(one, "scripts are those whose names end in .php");
        }
        if protects(one) {
            notes.unprotected(
                one,
                "what its block says of clients does not hold for scripts",
            );
        }
        found = Some((pass, scope.clone()));
    }
    found
}

pub fn locations(
    directive: &Directive,
    all: &[(&Directive, Scope<'_>)],
    scope: &Scope<'_>,
    site: &Site<'_>,
    server: &mut Server<'_>,
    notes: &mut Notes,
) {
    // A `return` of the server comes before its locations.
    if let Some(said) = scope.own_one("return") {
        let kind = scope.word("default_type");
        if let Some((key, value)) = returned(said, kind, &site.names, notes) {
            server.locations = vec![whole(key, value)];
        }
        return;
    }
    for rewrite in directive
        .inside()
        .iter()
        .filter(|one| one.name == "rewrite")
    {
        rewrites(rewrite, site, server, notes);
        if server
            .locations
            .iter()
            .any(|one| one.place == Place::below("/"))
        {
            return;
        }
    }
    for (one, inner) in all {
        let (modifier, path) = kind(one);
        if modifier.starts_with('~') || path.starts_with('@') {
            continue;
        }
        if let Some(status) = inner.own_one("stub_status") {
            notes.left_out(status, "set `metrics` to an address: flash shows its counters there, at /status and /metrics");
            continue;
        }
        if !is_plain(path) {
            match protects(one) {
                true => {
                    notes.unprotected(one, "the path is none that a location of flash can have")
                }
                false => notes.left_out(one, "the path is none that a location of flash can have"),
            }
            continue;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        if modifier != "=" && !last.is_empty() && !last.contains('.') {
            notes.in_part(
                one,
                format!(
                    "it holds for {path} and for what is below {path}/, and not for {path}-more"
                ),
            );
        }
        let place = Place {
            is_exact: modifier == "=",
            ..Place::below(path)
        };
        let is_final = matches!(modifier, "=" | "^~");
        let made = location(place, is_final, one, inner, site, notes);
        add(server, made);
    }
    if !server.locations.iter().any(|one| is_whole(&one.place)) {
        let mut made = Location {
            place: Place::below("/"),
            is_final: false,
            table: Table::default(),
            has_files: false,
        };
        files(directive, scope, site, &mut made, notes);
        add(server, made);
    }
    for (one, inner) in all {
        let (modifier, expression) = kind(one);
        let is_script = inner.own_one("fastcgi_pass").is_some();
        if modifier.starts_with('~') && !is_script {
            by_expression(one, expression, inner, site, server, notes);
        }
    }
}

/// Scripts that nginx has run, and flash cannot have run, are not to be shown as files.
pub fn hide_scripts(all: &[(&Directive, Scope<'_>)], site: &Site<'_>, server: &mut Server<'_>) {
    let runs = |(one, scope): &(&Directive, Scope<'_>)| {
        kind(one).0.starts_with('~') && scope.own_one("fastcgi_pass").is_some()
    };
    if !all.iter().any(runs) {
        return;
    }
    let is_shown = |one: &&Location| {
        let is_for_all = one.place.endings.is_empty() && !one.is_final && one.has_files;
        is_for_all && (site.scripts.is_none() || one.table.has("alias"))
    };
    let shown: Vec<String> = server
        .locations
        .iter()
        .filter(is_shown)
        .map(|one| one.place.path.clone())
        .collect();
    for path in shown {
        let place = Place {
            endings: vec![".php".to_string()],
            ..Place::below(&path)
        };
        let made = Location {
            place,
            ..whole("answer", table_of(502).inline())
        };
        add(server, made);
    }
}

/// The first location of a place is the one that holds.
fn add(server: &mut Server<'_>, mut made: Location) {
    let is_there = |other: &&Location| {
        let is_path = other.place.path.trim_matches('/') == made.place.path.trim_matches('/');
        is_path && other.place.is_exact == made.place.is_exact
    };
    let same: Vec<&Location> = server.locations.iter().filter(is_there).collect();
    if made.place.endings.is_empty() {
        if same.iter().any(|other| other.place.endings.is_empty()) {
            return;
        }
    } else {
        let taken: Vec<String> = same
            .iter()
            .flat_map(|other| other.place.endings.clone())
            .collect();
        made.place.endings.retain(|ending| !taken.contains(ending));
        if made.place.endings.is_empty() {
            return;
        }
    }
    server.locations.push(made);
}

/// A `rewrite` of the server.
fn rewrites(rewrite: &Directive, site: &Site<'_>, server: &mut Server<'_>, notes: &mut Notes) {
    let expression = rewrite.word(0);
    let place = match (expression, shape(expression)) {
        ("^" | "^(.*)$" | "^/(.*)$" | "^.*$" | "^/(.*)" | "^(.*)" | ".*", _) => Place::below("/"),
        (_, Some(Shape::Exact(paths))) if paths.len() == 1 && is_plain(&paths[0]) => Place {
            is_exact: true,
            ..Place::below(&paths[0])
        },
        (_, Some(Shape::Below(paths))) if paths.len() == 1 && is_plain(&paths[0]) => {
            Place::below(&paths[0])
        }
        _ => return notes.left_out(rewrite, "paths are not changed"),
    };
    let count = notes.all.len();
    match rewritten(rewrite, &place.path, &site.names, notes) {
        Some((key, value)) => {
            let made = Location {
                place,
                ..whole(key, value)
            };
            add(server, made);
        }
        None if notes.all.len() == count => notes.left_out(rewrite, "paths are not changed"),
        None => {}
    }
}

/// A location with a regular expression. It goes before all paths that are not final, so it holds below each of them.
fn by_expression(
    one: &Directive,
    expression: &str,
    scope: &Scope<'_>,
    site: &Site<'_>,
    server: &mut Server<'_>,
    notes: &mut Notes,
) {
    let found = match shape(expression) {
        Some(Shape::Hidden) if protects(one) => return,
        Some(Shape::Exact(paths)) if paths.iter().all(|path| is_plain(path)) => paths
            .iter()
            .map(|path| Place {
                is_exact: true,
                ..Place::below(path)
            })
            .collect(),
        Some(Shape::Below(paths)) if paths.iter().all(|path| is_plain(path)) => {
            if paths.iter().any(|path| !path.ends_with('/')) {
                notes.in_part(one, "it holds for whole names of a path only");
            }
            paths.iter().map(|path| Place::below(path)).collect()
        }
        Some(Shape::Ending { below, endings }) => {
            let others = server.locations.iter().filter(|other| {
                let is_path = other.place.endings.is_empty() && !other.place.is_exact;
                is_path && !other.is_final && other.place.path.starts_with(&below)
            });
            let mut places: Vec<String> = others.map(|other| other.place.path.clone()).collect();
            if !places.contains(&below) {
                places.push(below);
            }
            let place = |path: &String| Place {
                endings: endings.clone(),
                ..Place::below(path)
            };
            places.iter().map(place).collect()
        }
        _ => Vec::<Place>::new(),
    };
    if found.is_empty() {
        let meaning = "flash has no regular expressions: paths that fit are answered as others are";
        return match protects(one) {
            true => notes.unprotected(one, meaning),
            false => notes.left_out(one, meaning),
        };
    }
    for place in found {
        let made = location(place, false, one, scope, site, notes);
        add(server, made);
    }
}
