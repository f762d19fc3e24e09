// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server with an application in Python, and bytes to and from it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::LazyLock;

use super::program::{Answer, Program, PATIENCE};

/// Does what the path says, by the library.
const GOOD: &str = include_str!("good.py");
/// Speaks the protocol without the library, and wrongly where the path says so.
const BAD: &str = include_str!("bad.py");

/// `settings`: further ones of the application, each with a comma in front.
pub fn good(settings: &str) -> Program {
    application("good.py", settings, "")
}

pub fn bad(settings: &str) -> Program {
    application("bad.py", settings, "")
}

/// `above`: settings in front of the server's.
pub fn application(program: &str, settings: &str, above: &str) -> Program {
    let config = config(program, settings, above);
    Program::start(&config, &files())
}

/// What is below the directory of the configuration.
pub fn files() -> [(&'static str, &'static str); 4] {
    static LARGE: LazyLock<String> = LazyLock::new(|| "x".repeat(1 << 20));
    [
        ("good.py", GOOD),
        ("bad.py", BAD),
        ("root/file", "a file\n"),
        ("root/large", LARGE.as_str()),
    ]
}

pub fn config(program: &str, settings: &str, above: &str) -> String {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../application/python");
    let library = library.canonicalize().expect("it is there");
    let library = library.display();
    format!(
        "{above}log = \"access.log\"\nlog_format = \"json\"\n[[server]]\nheaders = {{ X-Own = \"1\" }}\n\
         [[server.location]]\npath = \"/app\"\n\
         application = {{ command = [\"python3\", \"{program}\"], environment = {{ PYTHONPATH = \"{library}\", \
         PYTHONDONTWRITEBYTECODE = \"1\" }}{settings} }}\n"
    )
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

/// Its connection ends with its answer.
pub fn get(program: &Program, target: &str) -> Answer {
    program.ask("GET", target, "")
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
