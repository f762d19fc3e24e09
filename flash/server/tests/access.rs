// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks, methods and types of a configuration, with the program itself.

mod program;

use std::net::Ipv4Addr;

use program::Program;

const CONFIG: &str = r#"
loops = 1

[[server]]
allow = ["127.0.0.0/16"]
deny = ["127.0.0.9"]
types = { wasm = "application/x-own" }
default_type = "text/plain"

[[server.location]]
path = "/public"
allow = ["0.0.0.0/0", "::/0"]
deny = []
methods = ["GET"]
charset = ""
types = { html = "text/x-own" }

[[server.location]]
path = "/old"
redirect = { to = "/new" }
"#;

const FILES: [(&str, &str); 4] = [
    ("root/a.wasm", "wasm"),
    ("root/public/a.wasm", "wasm"),
    ("root/public/index.html", "html"),
    ("root/README", "text"),
];

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// Who is not let in gets the same answer, whatever is there.
#[test]
fn networks_decide_before_anything_is_looked_for() {
    let program = Program::start(CONFIG, &FILES);
    assert_eq!(program.ask("GET", "/a.wasm", "").status, 200);
    for from in [DENIED, OUTSIDE] {
        let mut bodies = Vec::new();
        for target in ["/a.wasm", "/none", "/.git", "/old", "/public/../a.wasm"] {
            let answer = program.ask_from(from, "GET", target, "");
            assert_eq!(answer.status, 403, "{target}");
            bodies.push(answer.body);
        }
        bodies.dedup();
        assert_eq!(bodies.len(), 1);
        for method in ["HEAD", "OPTIONS", "POST"] {
            let answer = program.ask_from(from, method, "/none", "");
            assert_eq!(answer.status, 403, "{method}");
        }
        let range = program.ask_from(from, "GET", "/a.wasm", "Range: bytes=0-1\r\n");
        assert_eq!(range.status, 403);
        assert_eq!(program.ask_from(from, "GET", "/public/", "").body, "html");
    }
}

#[test]
fn a_location_takes_its_methods() {
    let program = Program::start(CONFIG, &FILES);
    for (method, target, status, allow) in [
        ("OPTIONS", "/a.wasm", 204, "GET, HEAD, OPTIONS"),
        ("POST", "/a.wasm", 405, "GET, HEAD, OPTIONS"),
        ("OPTIONS", "/public/", 405, "GET, HEAD"),
        ("DELETE", "/public/none", 405, "GET, HEAD"),
    ] {
        let answer = program.ask_from(HERE, method, target, "");
        assert_eq!(answer.status, status, "{method} {target}");
        assert_eq!(answer.field("Allow"), Some(allow), "{method} {target}");
    }
    assert_eq!(program.ask("HEAD", "/public/", "").status, 200);
}

#[test]
fn a_location_has_its_types() {
    let program = Program::start(CONFIG, &FILES);
    for (target, kind) in [
        ("/a.wasm", "application/x-own"),
        ("/README", "text/plain; charset=utf-8"),
        ("/public/a.wasm", "application/x-own"),
        ("/public/", "text/x-own"),
    ] {
        let answer = program.ask("GET", target, "");
        assert_eq!(answer.field("Content-Type"), Some(kind), "{target}");
    }
    let parts = program.ask("GET", "/README", "Range: bytes=0-0,2-2\r\n");
    let kind = "Content-Type: text/plain; charset=utf-8\r\n";
    assert_eq!(parts.body.matches(kind).count(), 2, "{}", parts.body);
}
