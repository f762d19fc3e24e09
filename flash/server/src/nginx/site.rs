// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and locations of flash as they are made, and what they are made from.

use std::collections::BTreeSet;
use std::path::Path;

use super::scope::Scope;
use super::syntax::Directive;
use super::table::{list, Table};
use super::upstreams::Groups;

/// What all servers have in common.
pub struct Surroundings<'a> {
    pub http: &'a [Directive],
    pub groups: Groups<'a>,
    pub directory: &'a Path,
    pub prefix: &'a Path,
}

/// What all locations of a server have in common.
pub struct Site<'a> {
    pub groups: &'a Groups<'a>,
    /// Where relative names of files begin, and relative roots.
    pub directory: &'a Path,
    pub prefix: &'a Path,
    /// Of the server.
    pub names: Vec<String>,
    pub named: Vec<(&'a str, Scope<'a>)>,
    /// How scripts are run: the `fastcgi_pass` with its scope.
    pub scripts: Option<(&'a Directive, Scope<'a>)>,
}

/// Where a location holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub path: String,
    pub is_exact: bool,
    pub endings: Vec<String>,
}

impl Place {
    pub fn below(path: &str) -> Place {
        Place {
            path: path.to_string(),
            ..Place::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Location {
    pub place: Place,
    /// Expressions do not take names away from it.
    pub is_final: bool,
    pub table: Table,
    /// Files answer, as far as no script does.
    pub has_files: bool,
}

impl Location {
    pub fn write(&self, out: &mut String) {
        out.push_str("\n[[server.location]]\n");
        let mut table = Table::default();
        let path = self.place.path.trim_end_matches('/');
        table.set("path", if path.is_empty() { "/" } else { path });
        if self.place.is_exact {
            table.set("exact", true);
        }
        if !self.place.endings.is_empty() {
            table.set("endings", list(self.place.endings.clone()));
        }
        table.write(out);
        self.table.write(out);
    }
}

#[derive(Debug, Clone)]
pub struct Server<'a> {
    pub from: &'a Directive,
    pub listen: Vec<String>,
    pub tls: Vec<String>,
    /// Certificates with their keys.
    pub pairs: Vec<(String, String)>,
    pub names: Vec<String>,
    /// Addresses at which it answers for names that no server has.
    pub defaults: BTreeSet<String>,
    pub table: Table,
    pub locations: Vec<Location>,
    /// It answers only for a name that is not given here.
    pub is_nameless: bool,
}

impl Server<'_> {
    pub fn addresses(&self) -> impl Iterator<Item = &String> {
        self.listen.iter().chain(&self.tls)
    }

    pub fn write(&self, out: &mut String) {
        out.push_str("\n[[server]]\n");
        let mut table = Table::default();
        if !self.listen.is_empty() {
            table.set("listen", list(self.listen.clone()));
        }
        if !self.tls.is_empty() {
            let pairs = self.pairs.iter().map(|(cert, key)| {
                let mut pair = Table::default();
                pair.set("listen", list(self.tls.clone()));
                pair.set("cert", cert.as_str());
                pair.set("key", key.as_str());
                pair.inline()
            });
            table.set("tls", list(pairs));
        }
        if !self.names.is_empty() {
            table.set("names", list(self.names.clone()));
        }
        table.write(out);
        self.table.write(out);
        for location in &self.locations {
            location.write(out);
        }
    }
}

pub fn is_whole(place: &Place) -> bool {
    place.path.trim_matches('/').is_empty() && !place.is_exact && place.endings.is_empty()
}

/// One that is all of a server.
pub fn whole(key: &'static str, value: toml::Value) -> Location {
    let mut table = Table::default();
    table.set(key, value);
    Location {
        place: Place::below("/"),
        is_final: false,
        table,
        has_files: false,
    }
}

pub fn is_plain(path: &str) -> bool {
    let mut names = path.trim_matches('/').split('/');
    path.starts_with('/') && (path == "/" || !names.any(|name| matches!(name, "" | "." | "..")))
}

pub fn table_of(status: i64) -> Table {
    let mut table = Table::default();
    table.set("status", status);
    table
}

/// All locations, also those in others, each with its scope.
pub fn flat<'a>(block: &'a [Directive], scope: &Scope<'a>) -> Vec<(&'a Directive, Scope<'a>)> {
    let mut found = Vec::new();
    for one in block.iter().filter(|one| one.name == "location") {
        let inner = scope.with(one.inside());
        found.push((one, inner.clone()));
        found.extend(flat(one.inside(), &inner));
    }
    found
}

/// The modifier of a location and what it is for.
pub fn kind(directive: &Directive) -> (&str, &str) {
    let first = directive.word(0);
    if directive.words.len() > 1 {
        return (first, directive.word(1));
    }
    for modifier in ["=", "^~", "~*", "~"] {
        if let Some(rest) = first.strip_prefix(modifier) {
            return (modifier, rest);
        }
    }
    ("", first)
}

/// The directives of a block would have kept clients out.
pub fn protects(directive: &Directive) -> bool {
    directive
        .inside()
        .iter()
        .any(|one| match one.name.as_str() {
            "deny" | "internal" | "limit_except" | "auth_basic" | "auth_request" => true,
            "return" => one.word(0).starts_with('4'),
            _ => false,
        })
}
