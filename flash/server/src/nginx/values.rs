// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values as nginx writes them, and as flash does: times, sizes, addresses, texts with variables.

/// Seconds: `30`, `90s`, `1h30m`, `30d`, `1y`; with a fraction only for milliseconds.
pub fn seconds(text: &str) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number: u32 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (scale, length) = match rest.as_bytes() {
            [] => (1.0, 0),
            [b'm', b's', ..] => (0.001, 2),
            [b's', ..] => (1.0, 1),
            [b'm', ..] => (60.0, 1),
            [b'h', ..] => (3600.0, 1),
            [b'd', ..] => (86_400.0, 1),
            [b'w', ..] => (604_800.0, 1),
            [b'M', ..] => (2_592_000.0, 1),
            [b'y', ..] => (31_536_000.0, 1),
            _ => return None,
        };
        total += f64::from(number) * scale;
        rest = rest[length..].trim_start();
    }
    Some(total)
}

/// A time in the largest unit that needs no fraction.
pub fn time(seconds: f64) -> String {
    let ms = (seconds * 1000.0).round() as u64;
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms > 0 && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    format!("{ms}ms")
}

/// Bytes: `8k`, `1m`, `4096`.
pub fn bytes(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(scale)
}

/// A size in the largest unit that needs no fraction.
pub fn size(bytes: u64) -> String {
    for (unit, length) in [("G", 1 << 30), ("M", 1 << 20), ("K", 1u64 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(length) {
            return format!("{}{unit}", bytes / length);
        }
    }
    bytes.to_string()
}

/// The addresses of a `listen`. `None`: it is none that flash can have.
pub fn addresses(text: &str) -> Option<Vec<String>> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Some(vec![format!("unix:{path}")]);
    }
    let one = |host: &str, port: &str| {
        let port: u16 = port.parse().ok()?;
        let all = match host {
            "" | "*" => vec![format!("0.0.0.0:{port}")],
            "localhost" => vec![format!("127.0.0.1:{port}"), format!("[::1]:{port}")],
            host => {
                let address: std::net::IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
                vec![std::net::SocketAddr::new(address, port).to_string()]
            }
        };
        Some(all)
    };
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return one("", text);
    }
    if text.starts_with('[') {
        return match text.split_once("]:") {
            Some((host, port)) => one(&host[1..], port),
            None if text.ends_with(']') => one(text, "80"),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((host, port)) => one(host, port),
        None => one(text, "80"),
    }
}

/// Variables, each with what flash calls it.
const VARIABLES: [(&str, &str); 14] = [
    ("host", "{host}"),
    ("http_host", "{host}"),
    ("scheme", "{scheme}"),
    ("request_uri", "{target}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("remote_addr", "{client}"),
    ("realip_remote_addr", "{client}"),
    ("proxy_add_x_forwarded_for", "{client}"),
    ("request_method", "{method}"),
    ("is_args", ""),
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("http_upgrade", ""),
];

/// A text with variables as flash has it. `others`: further variables. `Err`: the variable that flash does not have.
pub fn template(text: &str, others: &[(&str, &str)]) -> Result<String, String> {
    if text.replace("${", "").contains('{') {
        return Err("{".to_string());
    }
    // flash's own has the question mark.
    let text = text
        .replace("?$args", "$args")
        .replace("?$query_string", "$query_string");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let (name, after) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("{")?,
            None if behind.starts_with(|c: char| c.is_ascii_digit()) => behind.split_at(1),
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = behind.find(|c| !is_name(c)).unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        let known = others
            .iter()
            .chain(&VARIABLES)
            .find(|(its, _)| *its == name);
        let (_, its) = known.ok_or_else(|| format!("${name}"))?;
        out.push_str(its);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, expected) in [
            ("30", Some("30s")),
            ("90s", Some("90s")),
            ("1h30m", Some("90m")),
            ("30d", Some("720h")),
            ("1y", Some("8760h")),
            ("500ms", Some("500ms")),
            ("1m 30s", Some("90s")),
            ("0", Some("0ms")),
            ("x", None),
            ("", None),
            ("5q", None),
        ] {
            assert_eq!(seconds(text).map(time).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("8k", Some("8K")),
            ("64m", Some("64M")),
            ("1000", Some("1000")),
            ("m", None),
            ("1x", None),
        ] {
            assert_eq!(bytes(text).map(size).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn addresses_of_listen() {
        for (text, expected) in [
            ("80", &["0.0.0.0:80"][..]),
            ("*:8080", &["0.0.0.0:8080"]),
            ("127.0.0.1", &["127.0.0.1:80"]),
            ("[::]:443", &["[::]:443"]),
            ("[::1]", &["[::1]:80"]),
            ("localhost:81", &["127.0.0.1:81", "[::1]:81"]),
            ("unix:/run/a.sock", &["unix:/run/a.sock"]),
        ] {
            let found = addresses(text).expect(text);
            assert_eq!(found, expected, "{text}");
        }
        for text in ["example.org:80", "80000", "a:b", "[::"] {
            assert_eq!(addresses(text), None, "{text}");
        }
    }

    #[test]
    fn texts_with_variables() {
        for (text, expected) in [
            ("https://$host$request_uri", Ok("https://{host}{target}")),
            ("https://${host}/a", Ok("https://{host}/a")),
            ("/x$uri$is_args$args", Ok("/x{path}{query}")),
            ("/x?$args", Ok("/x{query}")),
            ("/new/$1", Ok("/new/{rest}")),
            ("$cookie_a", Err("$cookie_a")),
            ("a{b}", Err("{")),
            ("${host", Err("{")),
        ] {
            let found = template(text, &[("1", "{rest}")]);
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(found, expected, "{text}");
        }
    }
}
