// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers: their addresses, names and certificates.

use std::collections::BTreeSet;
use std::path::Path;

use super::conditions::conditions;
use super::error_pages::roots;
use super::locations::{hide_scripts, locations, scripts};
use super::notes::Notes;
use super::scope::Scope;
use super::settings::settings;
use super::site::{flat, Server, Site, Surroundings};
use super::syntax::Directive;
use super::values;

/// One server of nginx, which may be several of flash.
pub fn servers<'a>(
    directive: &'a Directive,
    around: &Surroundings<'_>,
    notes: &mut Notes,
) -> Vec<Server<'a>> {
    let scope = Scope::of(&[around.http, directive.inside()]);
    let mut server = Server {
        from: directive,
        listen: Vec::new(),
        tls: Vec::new(),
        pairs: Vec::new(),
        names: Vec::new(),
        defaults: BTreeSet::new(),
        table: settings(&scope, 0, around.directory, notes),
        locations: Vec::new(),
        is_nameless: false,
    };
    addresses(&scope, &mut server, notes);
    certificates(&scope, around.directory, &mut server, notes);
    names(&scope, &mut server, notes);
    if server.addresses().next().is_none() {
        notes.left_out(directive, "the server has no address that flash can have");
        return Vec::new();
    }
    let all = flat(directive.inside(), &scope);
    let named = all.iter().filter(|(one, _)| one.word(0).starts_with('@'));
    let site = Site {
        groups: &around.groups,
        directory: around.directory,
        prefix: around.prefix,
        names: server.names.clone(),
        named: named
            .map(|(one, scope)| (one.word(0), scope.clone()))
            .collect(),
        scripts: scripts(&all, notes),
    };
    locations(directive, &all, &scope, &site, &mut server, notes);
    hide_scripts(&all, &site, &mut server);
    roots(&scope, around.prefix, &mut server, notes);
    conditions(directive, server, &site, notes)
}

fn addresses(scope: &Scope<'_>, server: &mut Server<'_>, notes: &mut Notes) {
    let is_all_tls = scope.is_on("ssl");
    let said: Vec<&Directive> = scope
        .own()
        .iter()
        .filter(|one| one.name == "listen")
        .collect();
    if said.is_empty() {
        server.listen.push("0.0.0.0:80".to_string());
    }
    for listen in said {
        let has = |word: &str| listen.words.iter().any(|its| its == word);
        let Some(addresses) = values::addresses(listen.word(0)) else {
            notes.left_out(
                listen,
                "the address is not listened at: flash takes numbers, as 192.0.2.1:80",
            );
            continue;
        };
        if has("quic") {
            notes.left_out(listen, "HTTP/3 is not spoken");
            continue;
        }
        if has("proxy_protocol") {
            notes.left_out(
                listen,
                "the PROXY protocol is not spoken: the address is not listened at",
            );
            continue;
        }
        if has("http2") || has("spdy") {
            notes.in_part(listen, "HTTP/2 is not spoken; clients use HTTP/1.1");
        }
        for address in addresses {
            if has("default_server") || has("default") {
                server.defaults.insert(address.clone());
            }
            let into = match has("ssl") || is_all_tls {
                true => &mut server.tls,
                false => &mut server.listen,
            };
            if !into.contains(&address) {
                into.push(address);
            }
        }
    }
}

fn certificates(scope: &Scope<'_>, directory: &Path, server: &mut Server<'_>, notes: &mut Notes) {
    if server.tls.is_empty() {
        return;
    }
    let of = |name: &str| scope.all(&[name]).map_or(Vec::new(), |(_, its)| its);
    let (certs, keys) = (of("ssl_certificate"), of("ssl_certificate_key"));
    for (cert, key) in certs.iter().zip(&keys) {
        let is_file = |one: &Directive| !one.word(0).contains(['$', ':']);
        match is_file(cert) && is_file(key) {
            true => server.pairs.push((
                directory.join(cert.word(0)).display().to_string(),
                directory.join(key.word(0)).display().to_string(),
            )),
            false => notes.left_out(
                cert,
                "a certificate is a file, and the same for all clients",
            ),
        }
    }
    if server.pairs.is_empty() {
        if let Some(listen) = scope.own_one("listen") {
            notes.left_out(
                listen,
                "there is no certificate for TLS: its addresses are not listened at",
            );
        }
        server.tls.clear();
    }
    if let Some(protocols) = scope.one("ssl_protocols") {
        let has = |word: &str| protocols.words.iter().any(|its| its == word);
        if !has("TLSv1.2") || !has("TLSv1.3") {
            notes.in_part(protocols, "TLS 1.2 and 1.3 are spoken, both");
        }
    }
}

fn names(scope: &Scope<'_>, server: &mut Server<'_>, notes: &mut Notes) {
    let said: Vec<&Directive> = scope
        .own()
        .iter()
        .filter(|one| one.name == "server_name")
        .collect();
    let mut is_any = said.is_empty();
    for (directive, name) in said
        .iter()
        .flat_map(|one| one.words.iter().map(move |name| (one, name)))
    {
        let lower = name.to_ascii_lowercase();
        let (below, is_both) = match lower.strip_prefix('.') {
            Some(rest) => (rest.to_string(), true),
            None => (lower.clone(), false),
        };
        let plain = below.strip_prefix("*.").unwrap_or(&below);
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        match lower.as_str() {
            "_" | "" | "\"\"" => is_any = true,
            _ if plain.is_empty() || plain.starts_with('.') || !plain.bytes().all(is_fine) => {
                notes.left_out(directive, format!("`{name}` is no name that flash can have: it takes example.org and *.example.org"));
            }
            _ => {
                let all = match is_both {
                    true => vec![below.clone(), format!("*.{below}")],
                    false => vec![below],
                };
                for name in all {
                    if !server.names.contains(&name) {
                        server.names.push(name);
                    }
                }
            }
        }
    }
    server.is_nameless = server.names.is_empty() && !is_any;
}
