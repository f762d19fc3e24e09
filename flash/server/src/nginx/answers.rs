// SPDX-License-Identifier: MIT OR Apache-2.0
//! `return` and `rewrite`: redirects, and answers that are always the same.

use super::notes::Notes;
use super::site::table_of;
use super::syntax::Directive;
use super::table::Table;
use super::values;

/// The `redirect` or `answer` of a `return`. `kind`: the type that nginx has for texts.
pub fn returned(
    directive: &Directive,
    kind: Option<&str>,
    names: &[String],
    notes: &mut Notes,
) -> Option<(&'static str, toml::Value)> {
    let first = directive.word(0);
    let (status, text) = match first.parse::<i64>() {
        Ok(status) => (status, directive.words.get(1)),
        Err(_) => (302, directive.words.first()),
    };
    if let (301 | 302 | 303 | 307 | 308, Some(text)) = (status, text) {
        return redirect(directive, text, status, "", names, notes);
    }
    let is_known = crate::http::response::reason(u16::try_from(status).unwrap_or(0)) != "Unknown";
    let mut table = match status {
        444 => {
            notes.in_part(
                directive,
                "the answer is 403; nginx closes the connection without one",
            );
            table_of(403)
        }
        401 | 426 => {
            notes.in_part(
                directive,
                "the answer is 403: one with this status has to say what it asks for, which nginx leaves out",
            );
            table_of(403)
        }
        200 | 204 | 400.. if is_known => table_of(status),
        _ => {
            notes.in_part(
                directive,
                "the status is 404: flash has no answers with this one",
            );
            table_of(404)
        }
    };
    if let Some(text) = text.filter(|_| status != 204) {
        if text.contains('$') {
            notes.in_part(
                directive,
                "the text is the same for all requests: its variables are not replaced",
            );
        }
        table.set("text", text.as_str());
        table.set("type", kind.unwrap_or("text/plain"));
    }
    Some(("answer", table.inline()))
}

fn redirect(
    directive: &Directive,
    to: &str,
    status: i64,
    rest: &str,
    names: &[String],
    notes: &mut Notes,
) -> Option<(&'static str, toml::Value)> {
    let server_name = names.first().map_or("localhost", String::as_str);
    let others = [("1", rest), ("server_name", server_name)];
    let written = match values::template(to, &others) {
        Ok(written) if !to.contains("$1") || !rest.is_empty() => written,
        Ok(_) => {
            notes.left_out(directive, "a part of the path that an expression has found is not known: its paths are answered with 404");
            return Some(("answer", table_of(404).inline()));
        }
        Err(variable) => {
            let meaning =
                format!("there is nothing like {variable}: its paths are answered with 404");
            notes.left_out(directive, meaning);
            return Some(("answer", table_of(404).inline()));
        }
    };
    let written = match ["/", "http://", "https://", "{scheme}://"]
        .iter()
        .any(|begin| written.starts_with(begin))
    {
        true => written,
        false if written.starts_with("{path}") || written.starts_with("{target}") => {
            format!("{{scheme}}://{{host}}{written}")
        }
        false => {
            notes.left_out(
                directive,
                "it is neither a path nor a URL: its paths are answered with 404",
            );
            return Some(("answer", table_of(404).inline()));
        }
    };
    let mut table = Table::default();
    table.set("to", written);
    table.set("status", status);
    Some(("redirect", table.inline()))
}

/// The `redirect` of a `rewrite` that is one for all paths of its location. `path`: of the location.
pub fn rewritten(
    directive: &Directive,
    path: &str,
    names: &[String],
    notes: &mut Notes,
) -> Option<(&'static str, toml::Value)> {
    let (expression, to, flag) = (directive.word(0), directive.word(1), directive.word(2));
    let status = match flag {
        "permanent" => 301,
        "redirect" => 302,
        _ if to.starts_with("http://")
            || to.starts_with("https://")
            || to.starts_with("$scheme") =>
        {
            302
        }
        _ => return None,
    };
    let begin = path.trim_end_matches('/');
    // nginx adds the query unless a question mark ends the text.
    let (to, query) = match to.strip_suffix('?') {
        Some(to) => (to, ""),
        None => (to, "$is_args$args"),
    };
    let rest = match expression.trim_end_matches('$') {
        "^" | ".*" | "^.*" | "^/.*" => "",
        "^(.*)" | "(.*)" => "{path}",
        "^/(.*)" => "{path}",
        other if other == format!("^{begin}/(.*)") => "{rest}",
        other if other == format!("^{begin}(.*)") && !begin.is_empty() => "/{rest}",
        other
            if other == format!("^{begin}")
                || other == format!("^{begin}/")
                || other == format!("^{begin}/?") =>
        {
            ""
        }
        _ => {
            notes.left_out(directive, "its paths are answered as others are");
            return None;
        }
    };
    // `/$1` for `^/(.*)` is the whole path.
    let to = match expression.trim_end_matches('$') {
        "^/(.*)" => to.replace("/$1", "$1"),
        _ => to.to_string(),
    };
    let query = if to.contains("$request_uri") {
        ""
    } else {
        query
    };
    redirect(
        directive,
        &format!("{to}{query}"),
        status,
        rest,
        names,
        notes,
    )
}
