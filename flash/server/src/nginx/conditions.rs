// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `if` says of a whole server.

use std::collections::BTreeSet;

use super::answers::{returned, rewritten};
use super::notes::Notes;
use super::scope::Scope;
use super::site::{flat, protects, whole, Server, Site};
use super::syntax::Directive;
use super::table::Table;

/// What `if` says of a whole server.
pub fn conditions<'a>(
    directive: &'a Directive,
    mut server: Server<'a>,
    site: &Site<'_>,
    notes: &mut Notes,
) -> Vec<Server<'a>> {
    let mut others = Vec::new();
    for one in directive.inside().iter().filter(|one| one.name == "if") {
        let words: Vec<&str> = one
            .words
            .iter()
            .map(|word| word.trim_matches(['(', ')']))
            .filter(|word| !word.is_empty())
            .collect();
        let does = one
            .inside()
            .iter()
            .find(|inner| matches!(inner.name.as_str(), "return" | "rewrite"));
        let answer = |notes: &mut Notes| {
            let does = does.filter(|_| one.inside().len() == 1)?;
            match does.name.as_str() {
                "return" => returned(does, None, &site.names, notes),
                _ => rewritten(does, "/", &site.names, notes),
            }
        };
        match words.as_slice() {
            ["$host" | "$http_host", "=", name] if server.names.iter().any(|its| its == name) => {
                if let Some((key, value)) = answer(notes) {
                    server.names.retain(|its| its != name);
                    others.push(Server {
                        names: vec![name.to_string()],
                        defaults: BTreeSet::new(),
                        table: Table::default(),
                        locations: vec![whole(key, value)],
                        ..server.clone()
                    });
                    continue;
                }
            }
            ["$host" | "$http_host", "!=", name] if server.names.iter().any(|its| its == name) => {
                if let Some((key, value)) = answer(notes) {
                    let (own, rest) = server.names.iter().cloned().partition(|its| its == name);
                    server.names = own;
                    let defaults = std::mem::take(&mut server.defaults);
                    let redirects = Server {
                        names: rest,
                        defaults,
                        table: Table::default(),
                        locations: vec![whole(key, value)],
                        ..server.clone()
                    };
                    if !redirects.names.is_empty() || !redirects.defaults.is_empty() {
                        others.push(redirects);
                    }
                    continue;
                }
            }
            ["$scheme", "=", "http"] | ["$https", "!=", "on"] | ["$https", "="]
                if !server.listen.is_empty() =>
            {
                if let Some((key, value)) = answer(notes) {
                    let plain = std::mem::take(&mut server.listen);
                    let is_plain = |address: &String| plain.contains(address);
                    others.push(Server {
                        listen: plain.clone(),
                        tls: Vec::new(),
                        defaults: server
                            .defaults
                            .iter()
                            .filter(|one| is_plain(one))
                            .cloned()
                            .collect(),
                        table: Table::default(),
                        locations: vec![whole(key, value)],
                        ..server.clone()
                    });
                    continue;
                }
            }
            _ => {}
        }
        let meaning = "flash has no conditions: requests that fit are answered as others are";
        match protects(one) {
            true => notes.unprotected(one, meaning),
            false => notes.left_out(one, meaning),
        }
    }
    for (_, scope) in flat(directive.inside(), &Scope::default()) {
        for one in scope.own().iter().filter(|one| one.name == "if") {
            let meaning = "flash has no conditions: requests that fit are answered as others are";
            match protects(one) {
                true => notes.unprotected(one, meaning),
                false => notes.left_out(one, meaning),
            }
        }
    }
    let had_names = !site.names.is_empty();
    let is_empty = server.addresses().next().is_none();
    let is_gone =
        had_names && server.names.is_empty() && server.defaults.is_empty() && !others.is_empty();
    if !is_empty && !is_gone {
        others.insert(0, server);
    }
    others
}
