// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two applications, bytes to and from them, and their processes.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::program::{Program, PATIENCE};
use super::support::{application, get};

/// `settings`: further ones of the application, each with a comma in front.
pub fn good(settings: &str) -> Program {
    application("good.py", settings, "")
}

pub fn bad(settings: &str) -> Program {
    application("bad.py", settings, "")
}

/// Sends bytes, and reads until the server ends the connection. `None`: it was reset.
pub fn send(program: &Program, bytes: &[u8]) -> Option<String> {
    let mut stream = program.connect();
    stream.write_all(bytes).expect("the server reads");
    read_all(&mut stream)
}

pub fn read_all(stream: &mut TcpStream) -> Option<String> {
    let mut answer = Vec::new();
    let done = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    done.is_ok().then_some(text)
}

/// A client that has sent a request and not read its answer.
pub fn asking(program: &Program, target: &str) -> TcpStream {
    let mut stream = program.connect();
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// Of the processes of the application: their numbers, by their own answers.
pub fn pid(program: &Program) -> String {
    get(program, "/app/pid").body
}

pub fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}
