// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command says, and its exit status.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use debox_skipped::skipped;

use super::place::{has_nginx, Place, SITES};

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// How many notes of each kind the report has.
fn counts(said: &str) -> [usize; 3] {
    ["not protected any more", "left out", "translated in part"].map(|title| {
        let line = said
            .lines()
            .find(|line| line.starts_with(&format!("{title} (")));
        let count = line.and_then(|line| line.split(['(', ')']).nth(1)?.parse().ok());
        count.unwrap_or(0)
    })
}

#[test]
fn the_report_names_what_is_left_out() {
    if !has_nginx() {
        return skipped("configurations with nginx's tables: it is not installed");
    }
    for (site, _, expected) in SITES {
        let place = Place::new(site, [1, 2]);
        for name in ["app.sock", "fpm.sock"] {
            drop(UnixListener::bind(place.path(name)).expect("a socket"));
        }
        let output = place.import();
        let (said, errors) = text(&output);
        assert!(
            said.contains("passes `flash check`"),
            "{site}: {said}{errors}\n{}",
            place.text()
        );
        assert_eq!(counts(&said), expected, "{site}: {said}\n{}", place.text());
        let is_whole = expected == [0, 0, 0];
        assert_eq!(
            output.status.code(),
            Some(if is_whole { 0 } else { 2 }),
            "{site}: {said}"
        );
        // Each note has its place, and is in the new file, too.
        for line in said.lines().filter(|line| line.starts_with("  ")) {
            assert!(
                line.contains("/site.conf:") || line.contains("/mime.types:"),
                "{line}"
            );
            assert!(place.text().contains(line.trim()), "{line}");
        }
        let second = place.import();
        assert_eq!(second.status.code(), Some(1), "an existing file is kept");
        assert!(text(&second).1.contains("is there already"));
    }
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_place() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("nginx.conf");
    let import = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_flash"));
        program
            .arg("import-nginx")
            .arg(&file)
            .output()
            .expect("it can be executed")
    };
    for (config, status, what) in [
        (
            "http {\n  server { listen 80 }\n}\n",
            1,
            "nginx.conf:2: a semicolon is missing",
        ),
        ("events { }\n", 1, "no server in it"),
        ("include none.conf;\n", 1, "cannot read"),
        ("server { listen 80; return 404; }\n", 0, ""),
        (
            "server { listen 80; auth_request /a; return 404; }\n",
            2,
            "nginx.conf:1: auth_request /a",
        ),
    ] {
        fs::write(&file, config).expect("room");
        let output = import();
        let (out, errors) = text(&output);
        assert_eq!(output.status.code(), Some(status), "{config}{errors}");
        assert!(errors.contains(what), "{config}{errors}");
        assert_eq!(out.contains("[[server]]"), status != 1, "{out}");
    }
}
