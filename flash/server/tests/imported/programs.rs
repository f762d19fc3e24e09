// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs behind the servers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::place::{Place, Running};

/// Answers with what it was asked.
fn answer(stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    let (mut kept, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(1..) => {}
            _ => return,
        }
        if line == "\r\n" {
            break;
        }
        let lower = line.trim_end().to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
        // nginx speaks HTTP/1.0 to upstreams unless it is told otherwise, and neither has the other's fields.
        let own = [
            "connection: ",
            "via: ",
            "x-forwarded-host: ",
            "x-forwarded-proto: ",
        ];
        if !own.iter().any(|name| lower.starts_with(name)) {
            kept.push(lower.replace(" http/1.0", " http/1.1"));
        }
    }
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    kept[1..].sort();
    let text = kept.join("\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nX-App: 1\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let _ = stream
        .get_mut()
        .write_all([head.as_bytes(), text.as_bytes()].concat().as_slice());
}

/// At a port. Its threads end with the tests.
pub fn web() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

pub fn web_at_socket(place: &Place) {
    let listener = UnixListener::bind(place.path("app.sock")).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
}

/// `None`: it is not installed.
pub fn php(place: &Place) -> Option<Running> {
    let names = fs::read_dir("/usr/sbin").ok()?.flatten();
    let mut found = names.filter_map(|entry| entry.file_name().into_string().ok());
    let program = found.find(|name| name.starts_with("php-fpm"))?;
    // Its workers are whom it is started by, but never root.
    let user = match nix::unistd::geteuid().is_root() {
        true => "user = nobody\ngroup = nogroup\nlisten.mode = 0666\n",
        false => "",
    };
    let directory = place.path("");
    let config = format!(
        "[global]\nerror_log = {0}/fpm.log\n[www]\n{user}listen = {0}/fpm.sock\npm = static\npm.max_children = 2\n",
        directory.display()
    );
    fs::write(place.path("fpm.conf"), config).expect("room");
    let log = fs::File::create(place.path("fpm.err")).expect("room");
    let child = Command::new(format!("/usr/sbin/{program}"))
        .args(["--nodaemonize", "--fpm-config"])
        .arg(place.path("fpm.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("it can be executed");
    let running = Running(child);
    place.wait_for_socket("fpm.sock");
    Some(running)
}
