// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unix sockets: who may connect, and what becomes of their names.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use debox_skipped::skipped;
use nix::sys::signal::Signal;

use crate::running::{command, refusal, wait_until, Place, Running};

fn config(listen: &str) -> String {
    format!(
        "loops = 2\nmetrics = \"127.0.0.1:0\"\n[unix]\nmode = \"600\"\n\
         [[server]]\nlisten = [{listen}]\nroot = \"a\"\n"
    )
}

fn ask(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("room");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_socket_is_made_kept_and_removed() {
    let place = Place::new(&config("\"unix:logs/http.sock\""));
    let path = place.at("logs/http.sock");
    let flash = Running::start(&place);
    assert!(
        flash.said[0].starts_with("serving at unix:"),
        "{:?}",
        flash.said
    );
    let status = fs::metadata(&path).expect("it is there");
    assert_eq!(status.permissions().mode() & 0o777, 0o600);
    for _ in 0..20 {
        assert!(ask(&path).ends_with("of a\n"));
    }
    // A connection that is kept is served the new configuration, and one more socket is made.
    let both = "\"unix:logs/http.sock\", \"unix:logs/more.sock\"";
    place.configure(&config(both));
    flash.reload();
    assert_eq!(
        fs::metadata(&path).expect("it is there").ino(),
        status.ino()
    );
    assert!(
        ask(&place.at("logs/more.sock")).ends_with("of a\n"),
        "{}",
        flash.errors()
    );
    let error = refusal(command(&place));
    assert!(error.contains("another process listens there"), "{error}");
    assert!(ask(&path).ends_with("of a\n"));
    place.configure(&config("\"unix:logs/more.sock\""));
    flash.reload();
    wait_until("the first name is removed", || !path.exists());
    if flash.has_landlock() {
        place.configure(&config("\"unix:logs/more.sock\", \"unix:b/http.sock\""));
        flash.reload();
        let errors = flash.errors();
        assert!(
            errors.contains("in its sandbox, flash makes sockets only"),
            "{errors}"
        );
    } else {
        skipped("a socket outside of the sandbox: this kernel has no Landlock");
    }
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
    assert!(!place.at("logs/more.sock").exists());
}

#[test]
fn what_a_killed_server_has_left_is_replaced() {
    let place = Place::new(&config("\"unix:logs/http.sock\""));
    let path = place.at("logs/http.sock");
    let flash = Running::start(&place);
    flash.signal(Signal::SIGKILL);
    wait_until("the kernel has closed its socket", || {
        UnixStream::connect(&path).is_err()
    });
    drop(flash);
    assert!(path.exists());
    let flash = Running::start(&place);
    assert!(ask(&path).ends_with("of a\n"));
    drop(flash);
    fs::remove_file(&path).expect("it is there");
    fs::write(&path, "text").expect("room");
    let error = refusal(command(&place));
    assert!(error.contains("is no socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "text");
}
