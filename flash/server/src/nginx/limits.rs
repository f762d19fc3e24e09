// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of clients. They are the whole server's, so one of a location alone is not taken over.

use super::notes::Notes;
use super::syntax::Directive;
use super::table::Table;

pub fn limits(http: &[Directive], servers: &[&Directive], out: &mut Table, notes: &mut Notes) {
    let mut table = Table::default();
    let mut inside: Vec<&Directive> = Vec::new();
    fn below<'a>(block: &'a [Directive], found: &mut Vec<&'a Directive>) {
        for location in block.iter().filter(|one| one.name == "location") {
            let its = location.inside().iter();
            found.extend(its.filter(|one| matches!(one.name.as_str(), "limit_req" | "limit_conn")));
            below(location.inside(), found);
        }
    }
    for server in servers {
        below(server.inside(), &mut inside);
    }
    for one in inside {
        notes.unprotected(
            one,
            "a limit of a location alone: set `limits`, which hold for the whole server",
        );
    }
    let of_servers = servers.iter().flat_map(|server| server.inside());
    for one in http.iter().chain(of_servers) {
        let zone = |name: &str, kind: &str| {
            let mut zones = http.iter().filter(|zone| zone.name == kind);
            let begin = format!("zone={name}:");
            zones.find(|zone| zone.words.iter().any(|word| word.starts_with(&begin)))
        };
        let is_by_client =
            |zone: &&Directive| matches!(zone.word(0), "$binary_remote_addr" | "$remote_addr");
        match one.name.as_str() {
            "limit_req" => {
                let of = |begin: &str| one.words.iter().find_map(|word| word.strip_prefix(begin));
                let zone = of("zone=").and_then(|name| zone(name, "limit_req_zone"));
                let rate = zone.filter(is_by_client).and_then(rate);
                let Some((rate, is_whole)) = rate else {
                    notes.unprotected(one, "limits are of clients: set `limits`");
                    continue;
                };
                let meaning = match is_whole {
                    true => "a request beyond it gets 429, at once, and the limit holds for all servers together",
                    false => "the rate is one request per second, which is the lowest that flash has",
                };
                notes.in_part(one, meaning);
                table.set("requests", rate);
                let burst = of("burst=").and_then(|text| text.parse::<i64>().ok());
                table.set("request_burst", burst.unwrap_or(0).clamp(1, 1_000_000));
            }
            "limit_conn" => {
                let zone = zone(one.word(0), "limit_conn_zone").filter(is_by_client);
                match (zone, one.word(1).parse::<i64>()) {
                    (Some(_), Ok(most @ 1..=65_535)) => {
                        notes.in_part(one, "connections are counted, also those without a request, and closed at once");
                        table.set("connections", most);
                    }
                    _ => notes.unprotected(one, "limits are of clients: set `limits`"),
                }
            }
            _ => {}
        }
    }
    if !table.is_empty() {
        out.set("limits", table.inline());
    }
}

/// Requests per second, and whether that is what the zone says.
fn rate(zone: &Directive) -> Option<(i64, bool)> {
    let text = zone
        .words
        .iter()
        .find_map(|word| word.strip_prefix("rate="))?;
    let (number, unit) = text.split_once("r/")?;
    let number: i64 = number
        .parse()
        .ok()
        .filter(|number| (1..=1_000_000).contains(number))?;
    match unit {
        "s" => Some((number, true)),
        "m" => Some(((number / 60).max(1), number % 60 == 0)),
        _ => None,
    }
}
