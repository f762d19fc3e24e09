// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts in the stages that fork the server and in those that do not.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::program::{self, Program};

const SCRIPT: &str = "#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
printf '%s %s ' \"$REQUEST_METHOD\" \"$PATH_INFO\"
cat
case $QUERY_STRING in slow) sleep 20 ;; esac
";

fn with_script(stage: &str, sandbox: bool) -> String {
    format!(
        "stage = \"{stage}\"\nsandbox = {sandbox}\n[[server]]\n[[server.location]]\npath = \"/cgi\"\ncgi = {{ root = \"cgi\" }}\n"
    )
}

fn running_scripts(of: &Path) -> usize {
    let done = Command::new("pgrep")
        .arg("-f")
        .arg(of.join("cgi/script"))
        .output();
    let text = String::from_utf8(done.expect("pgrep can be executed").stdout);
    text.expect("text").lines().count()
}

/// By a fork of the whole server, and by the process that starts scripts.
#[test]
fn scripts_answer_the_same_however_they_are_started() {
    let files = [("root/a", "the content"), ("cgi/script", SCRIPT)];
    for stage in ["original", "fork-helper"] {
        let flash = Program::start(&with_script(stage, false), &files);
        let script = flash.path("cgi/script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let answer = flash.ask("GET", "/cgi/script/b", "");
        let is_right = answer.status == 200 && answer.body.contains("\nGET /b \r");
        assert!(is_right, "{stage}: {answer:?}");
        let mut stream = flash.connect();
        stream
            .write_all(b"POST /cgi/script HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
            .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("POST  hello"), "{stage}: {text}");
        assert_eq!(flash.ask("GET", "/cgi/none", "").status, 404, "{stage}");

        // A script that runs keeps no other client's connection open, and ends when its client has gone.
        let mut other = flash.connect();
        let mut client = flash.connect();
        client
            .write_all(b"GET /cgi/script?slow HTTP/1.0\r\n\r\n")
            .expect("it reads");
        client
            .read_exact(&mut [0; 12])
            .expect("the begin of an answer");
        other
            .write_all(b"GET /a HTTP/1.0\r\n\r\n")
            .expect("it reads");
        let mut text = String::new();
        other.read_to_string(&mut text).expect("an end");
        assert!(text.ends_with("the content"), "{stage}: {text}");
        assert!(running_scripts(&flash.path("")) > 0, "{stage}");
        drop(client);
        let ended = || running_scripts(&flash.path("")) == 0;
        program::wait_until("the script has ended", ended);
        flash.end();
    }
}

#[test]
fn a_stage_that_forks_has_to_be_without_the_sandbox() {
    let place = tempfile::tempdir().expect("a directory");
    for name in ["root", "cgi"] {
        fs::create_dir(place.path().join(name)).expect("room");
    }
    let config = with_script("sendfile", true).replacen(
        "[[server]]\n",
        "[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"root\"\n",
        1,
    );
    fs::write(place.path().join("flash.toml"), config).expect("room");
    let done = Command::new(env!("CARGO_BIN_EXE_flash"))
        .arg("run")
        .arg(place.path().join("flash.toml"))
        .output()
        .expect("it can be executed");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(
        !done.status.success() && text.contains("`sandbox = false`"),
        "{text}"
    );
}
