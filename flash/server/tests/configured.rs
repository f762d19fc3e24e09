// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash run` and `flash check`, with the program itself.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FLASH: &str = env!("CARGO_BIN_EXE_flash");

const CONFIG: &str = r#"
loops = 1
log = "access.log"

[timeouts]
idle = "5s"

[[server]]
listen = ["127.0.0.1:0"]
names = ["a.test"]
root = "a"
error_pages = { 404 = "/sorry.html" }
headers = { X-Frame-Options = "DENY" }

[[server.location]]
path = "/old"
redirect = { to = "https://example.org/new", status = 308 }

[[server.location]]
path = "/img"
root = "b"
cache = "1h"
"#;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn place(config: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(place.path().join("a")).expect("room");
    fs::create_dir_all(place.path().join("b/img")).expect("room");
    fs::write(place.path().join("a/index.html"), "of a\n").expect("room");
    fs::write(place.path().join("a/sorry.html"), "sorry\n").expect("room");
    fs::write(place.path().join("b/img/x.png"), "of b\n").expect("room");
    fs::write(place.path().join("flash.toml"), config).expect("room");
    place
}

fn start(place: &Path) -> (Running, String) {
    let mut child = Command::new(FLASH)
        .arg("run")
        .arg(place.join("flash.toml"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("a pipe");
    let running = Running(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.trim().trim_start_matches("serving at http://");
    (running, address.trim_end_matches('/').to_string())
}

fn get(address: &str, host: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn locations_redirects_headers_and_error_pages() {
    let place = place(CONFIG);
    let (_running, address) = start(place.path());
    let index = get(&address, "a.test", "/");
    assert!(
        index.starts_with("HTTP/1.1 200 ") && index.ends_with("\r\n\r\nof a\n"),
        "{index}"
    );
    assert!(index.contains("\r\nX-Frame-Options: DENY\r\n"), "{index}");
    assert!(!index.contains("Cache-Control"), "{index}");
    let image = get(&address, "a.test", "/%69mg/x.png");
    assert!(
        image.ends_with("of b\n") && image.contains("\r\nCache-Control: max-age=3600\r\n"),
        "{image}"
    );
    let missing = get(&address, "a.test", "/img/none");
    assert!(
        missing.starts_with("HTTP/1.1 404 ") && missing.ends_with("\r\n\r\nsorry\n"),
        "{missing}"
    );
    assert!(!missing.contains("Cache-Control"), "{missing}");
    let old = get(&address, "a.test", "/old/page");
    assert!(
        old.starts_with("HTTP/1.1 308 Permanent Redirect\r\n"),
        "{old}"
    );
    assert!(
        old.contains("\r\nLocation: https://example.org/new\r\n"),
        "{old}"
    );
    // A name that no server has.
    assert!(get(&address, "other.test", "/").ends_with("of a\n"));
}

#[test]
fn names_and_certificates_of_one_address() {
    // Taken now and given back: a server whose addresses are all known can have two hosts at one.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    drop(taken);
    let server = |name: &str, root: &str| {
        format!(
            "[[server]]\nnames = [\"{name}\"]\nroot = \"{root}\"\n\
             tls = [{{ listen = [\"127.0.0.1:{port}\"], cert = \"{name}.pem\", key = \"{name}.key\" }}]\n"
        )
    };
    let config = server("a.test", "a") + &server("b.test", "b");
    let place = place(&config);
    fs::write(place.path().join("b/index.html"), "of b\n").expect("room");
    for name in ["a.test", "b.test"] {
        let made = rcgen::generate_simple_self_signed(vec![name.to_string()]);
        let made = made.expect("a certificate");
        let write = |end: &str, text: String| {
            fs::write(place.path().join(format!("{name}.{end}")), text).expect("room");
        };
        write("pem", made.cert.pem());
        write("key", made.signing_key.serialize_pem());
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return debox_skipped::skipped("TLS by a configuration: curl is not installed");
    }
    let (_running, said) = start(place.path());
    assert_eq!(said, format!("serving at https://127.0.0.1:{port}"));
    for (name, body) in [("a.test", "of a\n"), ("b.test", "of b\n")] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .arg("--cacert")
            .arg(place.path().join(format!("{name}.pem")))
            .arg(format!("https://{name}:{port}/"))
            .output()
            .expect("it can be executed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), body, "{name}");
    }
}

fn check(config: &str) -> (bool, String) {
    let place = place(config);
    let file = place.path().join("flash.toml");
    let done = Command::new(FLASH)
        .arg("check")
        .arg(file)
        .output()
        .expect("it runs");
    (
        done.status.success(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

#[test]
fn check_judges_without_serving() {
    let (is_fine, _) = check(CONFIG);
    assert!(is_fine);
    let (is_fine, why) = check(&CONFIG.replace("root = \"b\"", "rot = \"b\""));
    assert!(
        !is_fine && why.contains("flash.toml:21:1: ") && why.contains("`root`"),
        "{why}"
    );
    let (is_fine, why) = check(&CONFIG.replace("/sorry.html", "/none.html"));
    assert!(!is_fine && why.contains("none.html"), "{why}");
}
