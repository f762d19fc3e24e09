// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server or a location says of its answers and its clients, whatever answers there.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use super::notes::Notes;
use super::scope::Scope;
use super::syntax::Directive;
use super::table::{list, pairs, Table};
use super::values;
use crate::http::method::is_token;
use crate::http::response::OWN_FIELDS;
use crate::types::Types;

/// Every client that has an address.
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// `level`: what blocks further outside say is said already. `directory`: where relative names begin.
pub fn settings(scope: &Scope<'_>, level: usize, directory: &Path, notes: &mut Notes) -> Table {
    let mut out = Table::default();
    if let Some(index) = scope.one_from(level, "index") {
        let (names, others) = index_names(index);
        if !others.is_empty() {
            let others = others.join(", ");
            notes.in_part(index, format!("a directory does not show {others}"));
        }
        if !names.is_empty() && names != ["index.html"] {
            out.set("index", list(names));
        }
    }
    if let Some(list) = scope.one_from(level, "autoindex") {
        out.set("list", list.word(0) == "on");
    }
    if let Some(gzip) = scope.one_from(level, "gzip_static") {
        out.set("precompressed", gzip.word(0) != "off");
    }
    if let Some(expires) = scope.one_from(level, "expires") {
        cache(expires, &mut out, notes);
    }
    if let Some(added) = scope.all_from(level, &["add_header"]) {
        headers(&added, &mut out, notes);
    }
    if let Some(rate) = scope.one_from(level, "limit_rate") {
        match values::bytes(rate.word(0)) {
            Some(bytes @ 1024..) => out.set("rate", values::size(bytes)),
            Some(0) => {}
            _ => notes.left_out(rate, "clients get answers as fast as they take them"),
        }
    }
    if let Some(rules) = scope.all_from(level, &["allow", "deny"]) {
        networks(&rules, &mut out, notes);
    }
    auth(scope, level, directory, &mut out, notes);
    types(scope, level, &mut out, notes);
    out
}

/// Those that are names of files, and others.
pub fn index_names(index: &Directive) -> (Vec<String>, Vec<String>) {
    let is_plain = |name: &&String| !name.contains(['/', '$']) && !name.is_empty();
    let all = index.words.iter();
    let (plain, others): (Vec<&String>, Vec<&String>) = all.partition(is_plain);
    let owned = |all: Vec<&String>| all.into_iter().cloned().collect();
    (owned(plain), owned(others))
}

fn cache(expires: &Directive, out: &mut Table, notes: &mut Notes) {
    let word = expires.word(0);
    match (word, values::seconds(word)) {
        ("off", _) => {}
        ("max", _) => out.set("cache", "87600h"),
        ("epoch", _) => out.set("cache", "0s"),
        (negative, _) if negative.starts_with('-') => out.set("cache", "0s"),
        (_, Some(seconds)) if expires.words.len() == 1 => out.set("cache", values::time(seconds)),
        _ => notes.left_out(expires, "answers do not say how long they may be kept"),
    }
}

fn headers(added: &[&Directive], out: &mut Table, notes: &mut Notes) {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for one in added {
        let (name, value) = (one.word(0).to_string(), one.word(1));
        let is_plain = value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let is_name = !name.is_empty() && name.bytes().all(is_token);
        if !is_name || OWN_FIELDS.contains(&name.to_ascii_lowercase().as_str()) {
            notes.left_out(one, "flash writes this field itself");
        } else if value.contains('$') || !is_plain {
            notes.left_out(one, "the value of a field is the same in all answers");
        } else if !value.is_empty() {
            all.entry(name)
                .and_modify(|before| *before = format!("{before}, {value}"))
                .or_insert(value.to_string());
        }
    }
    out.set("headers", pairs(all));
}

/// nginx takes the first rule that fits. flash looks at `deny` first, then at `allow`.
fn networks(rules: &[&Directive], out: &mut Table, notes: &mut Notes) {
    let (mut allow, mut deny, mut only_allowed) = (Vec::new(), Vec::new(), false);
    for rule in rules {
        let text = rule.word(0);
        let network = match (text, text.split_once('/')) {
            ("all", _) if rule.name == "deny" => {
                only_allowed = true;
                break;
            }
            ("all", _) => break,
            (_, Some((address, bits))) => {
                let parsed = address.parse().ok().zip(bits.parse().ok());
                parsed.and_then(|(address, bits)| ipnet::IpNet::new(address, bits).ok())
            }
            (_, None) => text
                .parse()
                .ok()
                .map(|address: std::net::IpAddr| address.into()),
        };
        let Some(network) = network.map(|network| network.trunc()) else {
            match rule.name.as_str() {
                "allow" => notes.left_out(rule, "these clients are not let in"),
                _ => notes.unprotected(rule, "these clients are let in"),
            }
            continue;
        };
        let before: &Vec<ipnet::IpNet> = if rule.name == "allow" { &deny } else { &allow };
        let overlaps = |other: &ipnet::IpNet| other.contains(&network) || network.contains(other);
        // What was allowed before a larger network was denied is denied by flash.
        if rule.name == "deny" && before.iter().any(overlaps) {
            notes.in_part(
                rule,
                "what it has in common with an `allow` before it is refused, too",
            );
        }
        match rule.name.as_str() {
            "allow" => allow.push(network),
            _ => deny.push(network),
        }
    }
    let texts = |all: &[ipnet::IpNet]| list(all.iter().map(ToString::to_string));
    match only_allowed {
        true => out.set("allow", texts(&allow)),
        // It may replace a list of the server.
        false => out.set("allow", list(ALL)),
    }
    out.set("deny", texts(&deny));
}

fn auth(scope: &Scope<'_>, level: usize, directory: &Path, out: &mut Table, notes: &mut Notes) {
    let Some(said) = scope.all_from(level, &["auth_basic", "auth_basic_user_file"]) else {
        return;
    };
    let realm = scope.one("auth_basic");
    let Some(basic) = realm.filter(|basic| basic.word(0) != "off") else {
        if realm.is_some() {
            out.set("auth", false);
        }
        return;
    };
    let Some(file) = scope.word("auth_basic_user_file") else {
        return notes.unprotected(said[0], "there is no file of users");
    };
    if file.contains('$') {
        return notes.unprotected(basic, "the file of users is another for each request");
    }
    let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    let realm: String = basic.word(0).chars().filter(|c| is_plain(*c)).collect();
    let mut table = Table::default();
    table.set("realm", realm);
    table.set("users", directory.join(file).display().to_string());
    out.set("auth", table.inline());
}

fn types(scope: &Scope<'_>, level: usize, out: &mut Table, notes: &mut Notes) {
    if let Some(charset) = scope.one_from(level, "charset") {
        let word = if charset.word(0) == "off" {
            ""
        } else {
            charset.word(0)
        };
        out.set("charset", word);
    } else if level == 0 {
        out.set("charset", "");
    }
    match scope.one_from(level, "default_type") {
        Some(kind) if kind.word(0) != "application/octet-stream" || level > 0 => {
            out.set("default_type", kind.word(0));
        }
        None if level == 0 => out.set("default_type", "text/plain"),
        _ => {}
    }
    let Some(tables) = scope.all_from(level, &["types"]) else {
        return;
    };
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let known = Types {
        charset: String::new(),
        ..Types::default()
    };
    let mut count = 0;
    for row in tables.iter().flat_map(|table| table.inside()) {
        for ending in &row.words {
            count += 1;
            let ending = ending.trim_start_matches('.').to_ascii_lowercase();
            let differs = known.of(format!("a.{ending}").as_bytes()) != row.name;
            let is_type = crate::types::check(&row.name).is_ok();
            if is_type && !ending.is_empty() && !ending.contains('/') && (differs || level > 0) {
                found.insert(ending, Value::String(row.name.clone()));
            }
        }
    }
    let (at, _) = scope.all(&["types"]).unwrap_or_default();
    if at > 0 {
        let meaning = match count {
            0 => "endings keep the types that they have elsewhere",
            _ => "endings that are not named here keep the types that they have elsewhere",
        };
        notes.in_part(tables[0], meaning);
    }
    if !found.is_empty() {
        out.set("types", Value::Table(found.into_iter().collect()));
    }
}
