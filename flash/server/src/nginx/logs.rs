// SPDX-License-Identifier: MIT OR Apache-2.0
//! The access log.

use std::path::Path;

use super::notes::Notes;
use super::syntax::Directive;
use super::table::Table;

pub fn logs(
    http: &[Directive],
    servers: &[&Directive],
    directory: &Path,
    out: &mut Table,
    notes: &mut Notes,
) {
    let is_log = |one: &&Directive| one.name == "access_log";
    let of_servers = servers.iter().flat_map(|server| server.inside());
    let all: Vec<&Directive> = http.iter().chain(of_servers).filter(is_log).collect();
    let is_file = |one: &&&Directive| {
        !one.word(0).starts_with("syslog:") && one.word(0) != "off" && !one.word(0).contains('$')
    };
    let Some(chosen) = all.iter().find(is_file) else {
        for one in all.iter().filter(|one| one.word(0) != "off") {
            notes.left_out(
                one,
                "there is no access log: it is a file, and one for all requests",
            );
        }
        return in_locations(servers, notes);
    };
    out.set("log", directory.join(chosen.word(0)).display().to_string());
    let name = chosen.word(1);
    let format = http
        .iter()
        .find(|one| one.name == "log_format" && one.word(0) == name);
    match format {
        _ if matches!(name, "" | "combined") || name.contains('=') => {}
        Some(format)
            if format
                .words
                .iter()
                .any(|word| word == "escape=json" || word.trim_start().starts_with('{')) =>
        {
            out.set("log_format", "json");
            notes.in_part(format, "the access log has flash's own JSON");
        }
        Some(format) => notes.in_part(format, "the access log has the format `combined`"),
        None => notes.in_part(chosen, "the access log has the format `combined`"),
    }
    for other in all.iter().filter(|one| one.word(0) != chosen.word(0)) {
        notes.left_out(other, "there is one access log, for all requests");
    }
    in_locations(servers, notes);
}

fn in_locations(servers: &[&Directive], notes: &mut Notes) {
    fn inside(block: &[Directive], notes: &mut Notes) {
        for location in block.iter().filter(|one| one.name == "location") {
            for log in location
                .inside()
                .iter()
                .filter(|one| one.name == "access_log")
            {
                notes.left_out(log, "there is one access log, for all requests");
            }
            inside(location.inside(), notes);
        }
    }
    for server in servers {
        inside(server.inside(), notes);
    }
}
