// SPDX-License-Identifier: MIT OR Apache-2.0
//! CGI: programs that a process of the server starts.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{place, wait_for, Flash};

const SCRIPTS: [(&str, &str); 9] = [
    (
        "env",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nenv | sort\npwd\ncat\n",
    ),
    ("status", "#!/bin/sh\necho 'Status: 404 Gone Away'\necho 'X-A: b'\necho\necho no\n"),
    ("garbage", "#!/bin/sh\necho this is no head\necho\n"),
    ("silent", "#!/bin/sh\nexit 3\n"),
    ("errors", "#!/bin/sh\necho said by a script > /dev/stderr\nprintf 'A: b\\n\\nfine' > /dev/stdout\n"),
    // The shell waits for a child, which is in its group.
    ("hangs", "#!/bin/sh\necho $$ > \"$0.pid\"\nsleep 1000\n"),
    (
        "dies",
        "#!/bin/sh\nprintf 'A: b\\n\\nhalf'\nwhile ! [ -e \"$0.go\" ]; do sleep 0.02; done\nkill -9 $$\n",
    ),
    ("endless", "#!/bin/sh\nprintf 'A: b\\n\\n'\nwhile :; do echo much text; done\n"),
    ("busy", "#!/bin/sh\nwhile ! [ -e \"$0.go\" ]; do sleep 0.02; done\nprintf 'A: b\\n\\ndone'\n"),
];

fn scripts() -> TempDir {
    let place = place();
    let directory = place.path().join("cgi");
    fs::create_dir_all(directory.join("sub")).expect("room");
    for (name, text) in SCRIPTS {
        write(&directory.join(name), text, 0o755);
    }
    write(&directory.join("sub/deep"), SCRIPTS[0].1, 0o755);
    write(&directory.join("plain"), SCRIPTS[0].1, 0o644);
    write(&directory.join("broken"), "#!/no/such/program\n", 0o755);
    write(&directory.join(".hidden"), SCRIPTS[0].1, 0o755);
    place
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("room");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn cgi(settings: &str) -> Flash {
    let location =
        format!("[[server.location]]\npath = \"/cgi-bin\"\ncgi = {{ root = \"cgi\"{settings} }}\n");
    Flash::in_place(scripts(), &location)
}

#[test]
fn a_script_sees_its_request_and_answers() {
    let flash = cgi(", params = { OWN = \"mine\" }");
    let answer = flash.send(
        b"POST /cgi-bin/env/a%20b/c?x=%31 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\
          Content-Length: 7\r\nProxy: evil\r\nX-Own: 1\r\n\r\ncontent",
    );
    let root = flash
        .place
        .path()
        .join("cgi")
        .canonicalize()
        .expect("it is there");
    let root = root.display();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=POST",
        "SCRIPT_NAME=/cgi-bin/env",
        "PATH_INFO=/a b/c",
        &format!("PATH_TRANSLATED={root}/a b/c"),
        &format!("SCRIPT_FILENAME={root}/env"),
        &format!("SERVER_PORT={}", flash.address.port()),
        "QUERY_STRING=x=%31",
        "CONTENT_LENGTH=7",
        "HTTP_X_OWN=1",
        "SERVER_NAME=a.test",
        "OWN=mine",
        &root.to_string(),
        "content",
    ] {
        assert!(answer.lines().any(|its| its == line), "{line}: {answer}");
    }
    assert!(!answer.contains("evil"), "{answer}");
    assert!(flash
        .get("/cgi-bin/sub/deep/x")
        .contains("\nSCRIPT_NAME=/cgi-bin/sub/deep\n"));
    let status = flash.get("/cgi-bin/status");
    assert!(status.starts_with("HTTP/1.1 404 Gone Away\r\n") && status.contains("\r\nX-A: b\r\n"));
    let errors = flash.get("/cgi-bin/errors");
    assert!(errors.contains("\r\n4\r\nfine\r\n0\r\n\r\n"), "{errors}");
    wait_for("the script's words", || {
        flash.errors().contains("said by a script")
    });
    let large = "x".repeat(1 << 20);
    let request = format!(
        "POST /cgi-bin/env HTTP/1.0\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    );
    assert!(flash
        .send(request.as_bytes())
        .ends_with(&format!("\n{large}")));
}

#[test]
fn content_without_a_length_is_for_scripts_that_can_read_it() {
    let flash = cgi(", chunked = true");
    let large = "x".repeat(1 << 20);
    let request = format!(
        "POST /cgi-bin/env HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n{:x}\r\n{large}\r\n0\r\nX: trailer\r\n\r\n",
        large.len()
    );
    let answer = flash.send(request.as_bytes());
    assert!(!answer.contains("CONTENT_LENGTH"));
    // The answer is chunked, too, in other pieces.
    assert!(answer.matches("xxxxxxxx").count() * 8 > large.len() - 1000);
    assert!(answer.contains("abc") && answer.ends_with("\r\n0\r\n\r\n"));
}

#[test]
fn what_is_no_script_is_not_executed() {
    let flash = cgi("");
    for (target, status) in [
        ("/cgi-bin/none", 404),
        ("/cgi-bin", 404),
        ("/cgi-bin/sub/", 404),
        ("/cgi-bin/.hidden", 404),
        ("/cgi-bin/sub/%2e%2e%2fenv", 404),
        ("/cgi-bin/plain", 403),
        ("/cgi-bin/broken", 500),
        ("/cgi-bin/garbage", 502),
        ("/cgi-bin/silent", 502),
    ] {
        let answer = flash.get(target);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {answer}"
        );
    }
    let chunked = b"POST /cgi-bin/env HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(flash.send(chunked).starts_with("HTTP/1.1 411 "));
}

/// The process of a script that has written its number.
fn script_process(flash: &Flash) -> String {
    let path = flash.place.path().join("cgi/hangs.pid");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    wait_for("a script that runs", || read().ends_with('\n'));
    let pid = read().trim().to_string();
    let _ = fs::remove_file(&path);
    pid
}

fn is_there(pid: &str) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn scripts_have_limits_and_leave_nothing_behind() {
    let flash = cgi(", time = \"300ms\", output = \"1M\"");
    assert!(flash.get("/cgi-bin/hangs").starts_with("HTTP/1.1 504 "));
    let pid = script_process(&flash);
    wait_for("the end of a script without time", || !is_there(&pid));
    let endless = flash.get("/cgi-bin/endless");
    assert!(endless.len() < 3 << 20 && !endless.ends_with("\r\n0\r\n\r\n"));
    // The client goes away, and the script goes with it.
    let flash = cgi("");
    let mut client = flash.connect();
    client
        .write_all(b"GET /cgi-bin/hangs HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let pid = script_process(&flash);
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
        .expect("a socket");
    drop(client);
    wait_for("the end of a script without a client", || !is_there(&pid));
    // The server goes away, and the scripts and their host with it.
    let mut client = flash.connect();
    client
        .write_all(b"GET /cgi-bin/hangs HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let pid = script_process(&flash);
    drop(flash);
    wait_for("the end of a script without a server", || !is_there(&pid));
}

#[test]
fn a_script_that_is_killed_has_no_whole_answer() {
    let flash = cgi("");
    let mut client = flash.connect();
    client
        .write_all(b"GET /cgi-bin/dies HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = vec![0; 12];
    client.read_exact(&mut answer).expect("a begin");
    fs::write(flash.place.path().join("cgi/dies.go"), "").expect("room");
    let _ = client.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && !answer.ends_with("\r\n0\r\n\r\n"),
        "{answer}"
    );
}

#[test]
fn more_scripts_than_may_run_are_a_503() {
    let flash = cgi(", processes = 1");
    let mut client = flash.connect();
    client
        .write_all(b"GET /cgi-bin/busy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    wait_for("a script", || {
        flash.metric("flash_upstream_connections") == 1
    });
    assert!(flash.get("/cgi-bin/env").starts_with("HTTP/1.1 503 "));
    fs::write(flash.place.path().join("cgi/busy.go"), "").expect("room");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("\r\ndone\r\n"), "{answer}");
    wait_for("room for a script", || {
        flash.get("/cgi-bin/env").starts_with("HTTP/1.1 200 ")
    });
}

/// The processes below another, with their names.
fn children(pid: &str) -> Vec<(String, String)> {
    let output = Command::new("ps")
        .args(["-o", "pid=,stat=", "--ppid", pid])
        .output();
    let text = String::from_utf8_lossy(&output.expect("ps").stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    lines
        .map(|(pid, state)| (pid.to_string(), state.trim().to_string()))
        .collect()
}

#[test]
fn the_host_of_scripts_is_started_again_and_has_no_zombies() {
    let flash = cgi("");
    let server = flash.running.0.id().to_string();
    let [(supervisor, _)] = children(&server).try_into().expect("one process");
    for _ in 0..50 {
        assert!(flash.get("/cgi-bin/env").starts_with("HTTP/1.1 200 "));
    }
    let [(host, _)] = children(&supervisor).try_into().expect("one process");
    wait_for("the last script's end", || children(&host).is_empty());
    let killed = Command::new("kill").args(["-9", &host]).status();
    assert!(killed.expect("kill").success());
    wait_for("another host", || {
        let answer = flash.get("/cgi-bin/env");
        let is_503 = answer.starts_with("HTTP/1.1 50");
        assert!(is_503 || answer.starts_with("HTTP/1.1 200 "), "{answer}");
        !is_503
    });
    let killed = Command::new("kill").args(["-9", &supervisor]).status();
    assert!(killed.expect("kill").success());
    // Without it there are no scripts, and everything else goes on.
    wait_for("no host", || {
        flash.get("/cgi-bin/env").starts_with("HTTP/1.1 503 ")
    });
    assert!(flash.get("/file.txt").ends_with("a file\n"));
}
