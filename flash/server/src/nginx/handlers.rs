// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations that other programs answer.

use super::notes::Notes;
use super::scope::Scope;
use super::site::{table_of, Location, Site};
use super::syntax::Directive;
use super::table::Table;
use super::upstreams;

/// What other programs answer. Whether it is that.
pub fn upstream(
    scope: &Scope<'_>,
    site: &Site<'_>,
    made: &mut Location,
    notes: &mut Notes,
) -> bool {
    for one in scope.own() {
        let settings = match one.name.as_str() {
            "proxy_pass" => proxied(scope, one, &made.place.path, site, notes),
            "fastcgi_pass" => program(scope, one, site, notes),
            "uwsgi_pass" | "scgi_pass" | "grpc_pass" | "memcached_pass" => {
                notes.left_out(
                    one,
                    "flash does not speak this protocol: its paths are answered with 502",
                );
                None
            }
            _ => continue,
        };
        match settings {
            Some(settings) => made.table.extend(settings),
            // Files in its place could show the source of the program.
            None => made.table.set("answer", table_of(502).inline()),
        }
        return true;
    }
    false
}

fn proxied(
    scope: &Scope<'_>,
    pass: &Directive,
    path: &str,
    site: &Site<'_>,
    notes: &mut Notes,
) -> Option<Table> {
    let mut web = upstreams::web(pass, site.groups, notes)?;
    // `rewrite ^/api/(.*)$ /$1 break` takes the location's path away.
    let begin = path.trim_end_matches('/');
    for rewrite in scope.own().iter().filter(|one| one.name == "rewrite") {
        let expression = rewrite.word(0).trim_end_matches('$');
        let is_rest =
            expression == format!("^{begin}/(.*)") || expression == format!("^{begin}/?(.*)");
        match rewrite.word(1).strip_suffix("$1") {
            Some(to)
                if is_rest && to.starts_with('/') && to.ends_with('/') && !to.contains('$') =>
            {
                web.uri = Some(to.to_string());
            }
            _ => notes.left_out(rewrite, "the upstream gets the path as the client wrote it"),
        }
    }
    let has_slash = format!("{begin}/");
    let path = match scope.own_one("rewrite") {
        Some(_) => has_slash.as_str(),
        None => path,
    };
    let mut table = Table::default();
    table.set(
        "proxy",
        upstreams::proxy(scope, pass, &web, path, &site.names, notes),
    );
    table.set(
        "upstream",
        upstreams::limits(scope, "proxy", site.groups, &web.host, notes),
    );
    Some(table)
}

/// One program for the whole location.
fn program(
    scope: &Scope<'_>,
    pass: &Directive,
    site: &Site<'_>,
    notes: &mut Notes,
) -> Option<Table> {
    let fastcgi = upstreams::fastcgi(scope, pass, site.groups, true, notes)?;
    let mut table = Table::default();
    table.set("fastcgi", fastcgi.inline());
    table.set(
        "upstream",
        upstreams::limits(scope, "fastcgi", site.groups, pass.word(0), notes),
    );
    Some(table)
}
