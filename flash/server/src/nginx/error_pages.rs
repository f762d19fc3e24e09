// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of a server, and the pages of its errors.

use std::path::{Path, PathBuf};

use super::notes::Notes;
use super::scope::Scope;
use super::site::{is_whole, table_of, Location, Server};
use super::static_files::root_of;
use super::table::Table;

/// The errors that can have a page.
const ERRORS: [&str; 11] = [
    "401", "403", "404", "405", "412", "416", "429", "500", "502", "503", "504",
];

/// The root of the server, and its error pages.
pub fn roots(scope: &Scope<'_>, prefix: &Path, server: &mut Server<'_>, notes: &mut Notes) {
    let said = scope.one("root");
    let root = match said {
        Some(_) => root_of(scope, prefix),
        None => Some(prefix.join("html")),
    };
    let without = |one: &&mut Location| {
        one.has_files
            && !one.table.has("root")
            && !one.table.has("alias")
            && !one.table.has("answer")
    };
    let needs_root = server.locations.iter_mut().any(|one| without(&one));
    match (&root, said) {
        (Some(root), _) if needs_root => server.table.set("root", root.display().to_string()),
        (None, Some(said)) => {
            notes.left_out(
                said,
                "a root is the same for all requests: files are answered with 404",
            );
            for one in server.locations.iter_mut().filter(without) {
                one.table = Table::default();
                one.table.set("answer", table_of(404).inline());
            }
        }
        _ => {}
    }
    let Some((_, pages)) = scope.all(&["error_page"]) else {
        return;
    };
    let mut found = toml::Table::new();
    for page in pages {
        let Some((path, codes)) = page.words.split_last() else {
            continue;
        };
        if codes.iter().any(|code| code.starts_with('='))
            || !path.starts_with('/')
            || path.contains(['$', '?'])
        {
            notes.left_out(
                page,
                "an error has a page and keeps its status: flash's own page is shown",
            );
            continue;
        }
        let roots = |is_it: fn(&Location, &str) -> bool| {
            let its = server.locations.iter().filter(move |one| is_it(one, path));
            its.filter_map(|one| one.table.get("root")?.as_str())
                .map(PathBuf::from)
                .next()
        };
        let of_path = roots(|one, path| one.place.path == path);
        let own_root = of_path.or_else(|| roots(|one, _| is_whole(&one.place)));
        let is_of_server = own_root.is_none();
        let page_root = own_root.or_else(|| root.clone());
        let file = page_root.map(|root| root.join(path.trim_start_matches('/')));
        // A script's source is no page.
        let is_page = file.is_some_and(|file| file.is_file()) && !path.ends_with(".php");
        if !is_page {
            notes.left_out(
                page,
                format!("{path} is no page in a file that is there: flash's own page is shown"),
            );
            continue;
        }
        if let Some(root) = root.as_ref().filter(|_| is_of_server) {
            server.table.set("root", root.display().to_string());
        }
        for code in codes {
            match ERRORS.contains(&code.as_str()) {
                true => drop(found.insert(code.clone(), toml::Value::String(path.clone()))),
                false => notes.in_part(page, format!("{code} has flash's own page")),
            }
        }
    }
    if !found.is_empty() {
        server.table.set("error_pages", toml::Value::Table(found));
    }
}
