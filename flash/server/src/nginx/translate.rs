// SPDX-License-Identifier: MIT OR Apache-2.0
//! A whole configuration of nginx as one of flash.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{bail, Result};

use super::directives::{fate, Fate};
use super::limits::limits;
use super::logs::logs;
use super::notes::{Kind, Notes};
use super::server::servers;
use super::site::{Server, Surroundings};
use super::syntax::Directive;
use super::table::Table;
use super::values;

/// Blocks whose rows are no directives, or belong to another part of nginx.
const OPAQUE: [&str; 9] = [
    "types",
    "map",
    "geo",
    "split_clients",
    "upstream",
    "events",
    "stream",
    "mail",
    "charset_map",
];
const MOST_HEAD: u64 = 1 << 20;

#[derive(Debug)]
pub struct Translation {
    pub text: String,
    pub notes: Notes,
    pub servers: usize,
    pub locations: usize,
}

/// `directory`: where the names of certificates and the like begin; `prefix`: where relative roots begin.
///
/// # Errors
///
/// There is no server in it that flash can have.
pub fn translate(all: &[Directive], directory: &Path, prefix: &Path) -> Result<Translation> {
    let mut notes = Notes::default();
    walk(all, &mut notes);
    // The file of one site has its servers without an `http` around them.
    let http = all.iter().find(|one| one.name == "http");
    let http = http.map_or(all, Directive::inside);
    let around = Surroundings {
        http,
        groups: http
            .iter()
            .filter(|one| one.name == "upstream")
            .map(|one| (one.word(0), one))
            .collect(),
        directory,
        prefix,
    };
    let blocks: Vec<&Directive> = http.iter().filter(|one| one.name == "server").collect();
    let mut found = Vec::new();
    for block in &blocks {
        found.extend(servers(block, &around, &mut notes));
    }
    let found = arranged(found, &mut notes);
    if found.is_empty() {
        bail!("there is no server in it that flash can have");
    }
    let mut body = String::new();
    globals(all, http, &blocks, directory, &mut notes).write(&mut body);
    for server in &found {
        server.write(&mut body);
    }
    Ok(Translation {
        text: format!("{}{body}", head(&notes)),
        servers: found.len(),
        locations: found.iter().map(|server| server.locations.len()).sum(),
        notes,
    })
}

/// Counts all directives, and names those for which nothing is or can be done, wherever they stand.
fn walk(all: &[Directive], notes: &mut Notes) {
    for one in all {
        notes.total += 1;
        // flash does by itself what a `map` of this is for.
        let is_upgrade = one.name == "map" && one.word(0) == "$http_upgrade";
        let is_off = one.word(0) == "off" || is_upgrade;
        match fate(&one.name) {
            Fate::Read => {}
            Fate::LeftOut(meaning) if !is_off => notes.left_out(one, meaning),
            Fate::Unprotected(meaning) if !is_off => notes.unprotected(one, meaning),
            _ => *notes.unneeded.entry(one.name.clone()).or_default() += 1,
        }
        // What cannot be translated is named as a whole.
        let is_read =
            matches!(fate(&one.name), Fate::Read) && one.name != "if" && one.name != "limit_except";
        if is_read && !OPAQUE.contains(&one.name.as_str()) {
            walk(one.inside(), notes);
        }
    }
}

/// In an order in which the first server of each address is the one that nginx takes for other names.
fn arranged<'a>(mut all: Vec<Server<'a>>, notes: &mut Notes) -> Vec<Server<'a>> {
    all.retain(|server| !server.is_nameless || !server.defaults.is_empty());
    let addresses: BTreeSet<String> = all
        .iter()
        .flat_map(|server| server.addresses().cloned())
        .collect();
    for address in &addresses {
        let has = |server: &Server<'_>| server.addresses().any(|its| its == address);
        let is_said = all.iter().any(|server| server.defaults.contains(address));
        if let Some(first) = all
            .iter_mut()
            .find(|server| has(server))
            .filter(|_| !is_said)
        {
            first.defaults.insert(address.clone());
        }
    }
    let mut taken: BTreeSet<(String, String)> = BTreeSet::new();
    let mut kept: Vec<Server<'a>> = Vec::new();
    for mut server in all {
        // Of two servers with a name at an address, nginx takes the first.
        let own: Vec<String> = server.addresses().cloned().collect();
        server.names.retain(|name| {
            let mut pairs = own.iter().map(|address| (address.clone(), name.clone()));
            pairs.all(|pair| !taken.contains(&pair))
        });
        for address in &own {
            taken.extend(
                server
                    .names
                    .iter()
                    .map(|name| (address.clone(), name.clone())),
            );
        }
        if server.names.is_empty() {
            let defaults = server.defaults.clone();
            server.listen.retain(|address| defaults.contains(address));
            server.tls.retain(|address| defaults.contains(address));
        }
        let is_reached = server.addresses().next().is_some();
        match is_reached {
            true => kept.push(server),
            false => notes.left_out(
                server.from,
                "no request reaches it: another server answers for its names",
            ),
        }
    }
    ordered(kept, notes)
}

fn ordered<'a>(mut rest: Vec<Server<'a>>, notes: &mut Notes) -> Vec<Server<'a>> {
    let mut found: Vec<Server<'a>> = Vec::new();
    let mut begun: BTreeSet<String> = BTreeSet::new();
    while !rest.is_empty() {
        let is_next = |server: &Server<'_>| {
            let mut addresses = server.addresses();
            addresses.all(|address| begun.contains(address) || server.defaults.contains(address))
        };
        let at = rest.iter().position(is_next).unwrap_or_else(|| {
            let meaning = "at one of its addresses it answers for names that no server has";
            notes.in_part(rest[0].from, meaning);
            0
        });
        let server = rest.remove(at);
        begun.extend(server.addresses().cloned());
        found.push(server);
    }
    found
}

/// Settings of the whole program.
fn globals(
    main: &[Directive],
    http: &[Directive],
    servers: &[&Directive],
    directory: &Path,
    notes: &mut Notes,
) -> Table {
    let mut out = Table::default();
    let of_main = |name: &str| main.iter().rev().find(|one| one.name == name);
    if let Some(workers) = of_main("worker_processes") {
        if let Ok(number @ 1..=256) = workers.word(0).parse::<i64>() {
            out.set("loops", number);
        }
    }
    if let Some(user) = of_main("user") {
        out.set("user", user.words.join(":"));
    }
    logs(http, servers, directory, &mut out, notes);
    let first = |name: &str, notes: &mut Notes| -> Option<Directive> {
        let of_http = http.iter().rev().find(|one| one.name == name);
        if let Some(one) = of_http {
            return Some(one.clone());
        }
        let mut inside = servers.iter().flat_map(|server| server.inside());
        let one = inside.find(|one| one.name == name)?;
        if servers.len() > 1 {
            notes.in_part(one, "it holds for all servers");
        }
        Some(one.clone())
    };
    let mut times = Table::default();
    for (name, key) in [
        ("keepalive_timeout", "idle"),
        ("client_header_timeout", "head"),
        ("send_timeout", "send"),
    ] {
        let Some(said) = first(name, notes) else {
            continue;
        };
        match values::seconds(said.word(0)) {
            Some(seconds) if seconds > 0.0 => times.set(key, values::time(seconds)),
            _ => notes.left_out(&said, "flash's own time holds"),
        }
    }
    if !times.is_empty() {
        out.set("timeouts", times.inline());
    }
    if let Some(buffers) = first("large_client_header_buffers", notes) {
        let size = buffers
            .word(0)
            .parse::<u64>()
            .ok()
            .zip(values::bytes(buffers.word(1)));
        if let Some(bytes) = size.and_then(|(number, size)| number.checked_mul(size)) {
            out.set("head_size", values::size(bytes.clamp(1024, MOST_HEAD)));
        }
    }
    limits(http, servers, &mut out, notes);
    out
}

/// What is left out, for who reads the file.
fn head(notes: &Notes) -> String {
    let mut out = "# Translated from nginx's configuration by `flash import-nginx`.\n".to_string();
    for kind in Kind::ALL {
        for note in notes.of(kind) {
            let line = format!(
                "{}: {}: {}: {}",
                kind.title(),
                note.at,
                note.text,
                note.meaning
            );
            let plain: String = line
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            out.push_str(&format!("# {plain}\n"));
        }
    }
    out.push('\n');
    out
}
