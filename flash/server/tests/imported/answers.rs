// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx with its own configuration and flash with the translated one give the same answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use debox_skipped::skipped;

use super::place::{has, has_nginx, Place, PATIENCE};
use super::programs;

/// Host, method, target, further fields, and whether the bodies are the same.
type Question<'a> = (&'a str, &'a str, &'a str, &'a str, bool);

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: String,
    fields: Vec<String>,
    body: String,
}

fn ask(address: SocketAddr, question: &Question<'_>) -> Answer {
    let (host, method, target, fields, has_body) = question;
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    let body = if fields.contains("Content-Length: 5\r\n") {
        "hello"
    } else {
        ""
    };
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("it reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or_default().to_string();
    // nginx makes redirects to itself absolute.
    let of_redirect = |value: &str| {
        let own = [format!("http://{host}"), format!("http://{address}")];
        let local = own.iter().find_map(|own| value.strip_prefix(own.as_str()));
        let local =
            local.map(|rest| rest.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()));
        local.unwrap_or(value).to_string()
    };
    let is_error = status.starts_with(['3', '4', '5']);
    let kept = head.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "location" => Some(format!("location: {}", of_redirect(value))),
            // Of an error's own page.
            "content-type" if is_error => None,
            // nginx leaves out what flash says of errors, too.
            "cache-control" if is_error => None,
            name if is_error && name.starts_with("x-") => None,
            "www-authenticate" => Some(format!("www-authenticate: {}", value.split(',').next()?)),
            name @ ("content-type"
            | "cache-control"
            | "content-encoding"
            | "content-range"
            | "strict-transport-security") => Some(format!("{name}: {value}")),
            name if name.starts_with("x-") && name != "x-powered-by" => {
                Some(format!("{name}: {value}"))
            }
            _ => None,
        }
    });
    let mut fields: Vec<String> = kept.collect();
    fields.sort();
    let body = if *has_body {
        body.to_string()
    } else {
        String::new()
    };
    Answer {
        status,
        fields,
        body,
    }
}

fn compare(place: &Place, questions: &[Question<'_>]) {
    let imported = place.import();
    let said = String::from_utf8_lossy(&imported.stdout);
    assert!(
        said.contains("passes `flash check`"),
        "{said}\n{}",
        place.text()
    );
    let (_nginx, _flash) = (place.run_nginx(), place.run_flash());
    let mut wrong = Vec::new();
    for question in questions {
        let (theirs, ours) = (ask(place.nginx, question), ask(place.flash, question));
        if theirs != ours {
            wrong.push(format!("{question:?}\nnginx: {theirs:?}\nflash: {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n\n{}", wrong.join("\n"), place.text());
}

/// GET, with the body.
fn get<'a>(host: &'a str, target: &'a str) -> Question<'a> {
    (host, "GET", target, "", true)
}

/// GET, without the body, which is the server's own.
fn head_of<'a>(host: &'a str, target: &'a str) -> Question<'a> {
    (host, "GET", target, "", false)
}

fn without_nginx() -> bool {
    let is_missing = !has_nginx();
    if is_missing {
        skipped("a translated configuration beside nginx: it is not installed");
    }
    is_missing
}

#[test]
fn debians_first_site() {
    if without_nginx() {
        return;
    }
    let place = Place::new("debian", [1, 2]);
    let a = "any.test";
    compare(
        &place,
        &[
            get(a, "/"),
            get(a, "/plain.txt?a=b"),
            get(a, "/app.js"),
            get(a, "/dir/"),
            head_of(a, "/dir"),
            head_of(a, "/dir?x=y"),
            head_of(a, "/empty/"),
            head_of(a, "/none"),
            head_of(a, "/none/"),
            (a, "HEAD", "/plain.txt", "", true),
            (a, "GET", "/plain.txt", "Range: bytes=2-3\r\n", true),
            (a, "POST", "/plain.txt", "Content-Length: 5\r\n", false),
        ],
    );
}

#[test]
fn wordpress_and_laravel_with_php() {
    if without_nginx() {
        return;
    }
    for (site, host) in [("wordpress", "blog.test"), ("laravel", "app.test")] {
        let place = Place::new(site, [1, 2]);
        let Some(_php) = programs::php(&place) else {
            return skipped("a front controller in PHP: php-fpm is not installed");
        };
        let mut questions = vec![
            get(host, "/"),
            get(host, "/?p=1"),
            get(host, "/2026/11/a-post/?x=y"),
            get(host, "/a/b"),
            get(host, "/tool.php?a=b"),
            get(host, "/plain.txt"),
            get(host, "/favicon.ico"),
            get(host, "/robots.txt"),
            (host, "POST", "/api/items", "Content-Length: 5\r\n", true),
            (host, "POST", "/", "Content-Length: 5\r\n", true),
            (host, "DELETE", "/api/items/1", "", true),
        ];
        if site == "wordpress" {
            let of_wordpress = [
                get(host, "/dir/"),
                get(host, "/app.js"),
                head_of(host, "/none.js"),
                head_of(host, "/none.php"),
                head_of(host, "/dir"),
            ];
            questions.extend(of_wordpress);
        }
        compare(&place, &questions);
    }
}

#[test]
fn django_and_rails_behind_their_files() {
    if without_nginx() {
        return;
    }
    let place = Place::new("django", [1, 2]);
    programs::web_at_socket(&place);
    let a = "django.test";
    compare(
        &place,
        &[
            get(a, "/"),
            get(a, "/admin/?next=/"),
            get(a, "/static/x/a.png"),
            get(a, "/media/b.jpg"),
            get(a, "/favicon.ico"),
            head_of(a, "/static/none"),
            (a, "POST", "/form", "Content-Length: 5\r\n", true),
            (a, "POST", "/form", "Content-Length: 5000000\r\n", false),
        ],
    );
    let place = Place::new("rails", [1, 2]);
    programs::web_at_socket(&place);
    let a = "rails.test";
    compare(
        &place,
        &[
            get(a, "/"),
            get(a, "/plain.txt"),
            get(a, "/dir/"),
            get(a, "/dir"),
            get(a, "/items/1?x=y"),
            get(a, "/assets/a.css"),
            (a, "GET", "/assets/a.css", "Accept-Encoding: gzip\r\n", true),
            head_of(a, "/assets/none"),
            (a, "POST", "/items", "Content-Length: 5\r\n", true),
            (a, "POST", "/plain.txt", "Content-Length: 5\r\n", false),
            (a, "PUT", "/items/1", "Content-Length: 5\r\n", true),
        ],
    );
}

#[test]
fn an_application_in_one_page_with_its_api() {
    if without_nginx() {
        return;
    }
    let place = Place::new("spa", [programs::web(), 2]);
    let a = "spa.test";
    compare(
        &place,
        &[
            get(a, "/"),
            get(a, "/some/view?x"),
            get(a, "/index.html"),
            get(a, "/app.js"),
            get(a, "/plain.txt"),
            head_of(a, "/none.js"),
            get(a, "/api/users?id=1"),
            get(a, "/api/"),
            get(a, "/api/a%20b/c"),
            (a, "POST", "/api/users", "Content-Length: 5\r\n", true),
            (
                a,
                "GET",
                "/api/x",
                "X-Real-IP: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\n",
                true,
            ),
        ],
    );
}

#[test]
fn a_pool_of_upstreams() {
    if without_nginx() {
        return;
    }
    let place = Place::new("pool", [programs::web(), programs::web()]);
    let a = "pool.test";
    compare(
        &place,
        &[
            get(a, "/a?b=c"),
            get(a, "/v1/users"),
            get(a, "/v1/"),
            get(a, "/old/x/y?z"),
            (
                a,
                "GET",
                "/",
                "Accept-Encoding: gzip\r\nX-Other: 1\r\n",
                true,
            ),
            (a, "POST", "/form", "Content-Length: 5\r\n", true),
            (a, "POST", "/form", "Content-Length: 20000\r\n", false),
        ],
    );
}

#[test]
fn redirects_to_tls_and_hosts() {
    if without_nginx() {
        return;
    }
    let place = Place::new("tls", [1, 2]);
    compare(
        &place,
        &[
            head_of("secure.test", "/"),
            head_of("www.secure.test", "/a%20b?c=d"),
            head_of("other.test:8080", "/x"),
            ("secure.test", "POST", "/x", "Content-Length: 5\r\n", false),
        ],
    );
    if has("curl") {
        let _flash = place.run_flash();
        let url = format!("https://{}/plain.txt", place.tls);
        let mut curl = std::process::Command::new("curl");
        let curl = curl.args([
            "-s",
            "-k",
            "-i",
            "--noproxy",
            "*",
            "-H",
            "Host: secure.test",
            &url,
        ]);
        let said = curl.output().expect("it can be executed").stdout;
        let said = String::from_utf8_lossy(&said).to_ascii_lowercase();
        assert!(
            said.contains("strict-transport-security: max-age=63072000"),
            "{said}"
        );
        assert!(said.ends_with("a text\n"), "{said}");
    }
    let place = Place::new("hosts", [1, 2]);
    compare(
        &place,
        &[
            get("one.test", "/plain.txt"),
            head_of("www.one.test", "/plain.txt?a"),
            head_of("unknown.test", "/plain.txt"),
            get("two.test", "/"),
            get("sub.two.test", "/x/a.png"),
            head_of("two.test", "/old/b/c?d=e"),
            head_of("two.test", "/start"),
        ],
    );
}

#[test]
fn a_mirror_and_compressed_files() {
    if without_nginx() {
        return;
    }
    let place = Place::new("mirror", [1, 2]);
    let a = "mirror.test";
    compare(
        &place,
        &[
            get(a, "/dir/"),
            get(a, "/dir/sub/a.txt"),
            head_of(a, "/empty"),
            head_of(a, "/private/"),
            get(a, "/private/a.txt"),
            get(a, "/icons/x/a.png"),
            get(a, "/icons/"),
            head_of(a, "/icons/none"),
        ],
    );
    let place = Place::new("static", [1, 2]);
    let a = "static.test";
    compare(
        &place,
        &[
            get(a, "/style.css"),
            (a, "GET", "/style.css", "Accept-Encoding: gzip\r\n", true),
            get(a, "/assets/a.css"),
            (
                a,
                "GET",
                "/assets/a.css",
                "Accept-Encoding: br, gzip\r\n",
                true,
            ),
            get(a, "/none"),
            get(a, "/health"),
            (a, "POST", "/health", "Content-Length: 5\r\n", true),
            head_of(a, "/gone/x"),
        ],
    );
}

#[test]
fn passwords_and_networks() {
    if without_nginx() {
        return;
    }
    let place = Place::new("auth", [1, 2]);
    let a = "auth.test";
    compare(
        &place,
        &[
            head_of(a, "/"),
            (
                a,
                "GET",
                "/",
                "Authorization: Basic YW5uOnNlY3JldA==\r\n",
                true,
            ),
            (
                a,
                "GET",
                "/",
                "Authorization: Basic YW5uOndyb25n\r\n",
                false,
            ),
            get(a, "/public/a.txt"),
            get(a, "/local/a.txt"),
            head_of(a, "/elsewhere/a.txt"),
            get(a, "/read/a.txt"),
        ],
    );
}
