// SPDX-License-Identifier: MIT OR Apache-2.0
//! One location.

use super::answers::{returned, rewritten};
use super::handlers::upstream;
use super::notes::Notes;
use super::scope::{Scope, OF_SERVER};
use super::settings::settings;
use super::site::{Location, Place, Site};
use super::static_files::files;
use super::syntax::Directive;
use super::table::{list, Table};

/// A location. `directive`: the block, for notes.
pub fn location(
    place: Place,
    is_final: bool,
    directive: &Directive,
    scope: &Scope<'_>,
    site: &Site<'_>,
    notes: &mut Notes,
) -> Location {
    let mut table = settings(scope, OF_SERVER, site.directory, notes);
    methods(scope, &mut table, notes);
    if let Some(internal) = scope.own_one("internal") {
        notes.unprotected(internal, "clients can ask for these paths themselves");
    }
    if let Some(satisfy) = scope
        .one("satisfy")
        .filter(|satisfy| satisfy.word(0) == "any")
    {
        notes.in_part(
            satisfy,
            "a client needs the right network and a password, both",
        );
    }
    let mut made = Location {
        place,
        is_final,
        table,
        has_files: false,
    };
    let handled = answer(scope, site, &mut made, notes) || upstream(scope, site, &mut made, notes);
    if !handled {
        files(directive, scope, site, &mut made, notes);
    }
    made
}

/// `return` and `rewrite`. Whether it is all that the location does.
fn answer(scope: &Scope<'_>, site: &Site<'_>, made: &mut Location, notes: &mut Notes) -> bool {
    for one in scope.own() {
        let found = match one.name.as_str() {
            "return" => returned(one, scope.word("default_type"), &site.names, notes),
            "rewrite" => rewritten(one, &made.place.path, &site.names, notes),
            _ => None,
        };
        if let Some((key, value)) = found {
            made.table.set(key, value);
            return true;
        }
    }
    false
}

fn methods(scope: &Scope<'_>, table: &mut Table, notes: &mut Notes) {
    let Some(limit) = scope.own_one("limit_except") else {
        return;
    };
    let known = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"];
    let all: Vec<&str> = limit.words.iter().map(String::as_str).collect();
    let is_refused = limit
        .inside()
        .iter()
        .any(|one| one.name == "deny" && one.word(0) == "all");
    let is_only = limit.inside().len() == 1;
    match is_refused && all.iter().all(|name| known.contains(name)) {
        true => {
            if !is_only {
                notes.in_part(limit, "no client may use other methods");
            }
            table.set("methods", list(all.iter().map(ToString::to_string)));
        }
        false => notes.unprotected(limit, "other methods have no limits of their own"),
    }
}
