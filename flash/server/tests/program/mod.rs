// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program with a configuration file, and clients at addresses of their own.
#![allow(dead_code, unused_imports)] // Each test uses a part.

#[path = "../started/mod.rs"]
mod started;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{bind, socket, AddressFamily, SocketType};
use tempfile::TempDir;

pub use started::{connect, wait_until, PATIENCE};
use started::{Started, FLASH};

pub struct Program {
    started: Started,
    place: TempDir,
    pub address: SocketAddr,
}

impl Program {
    /// `files`: below the directory of the configuration, `root` among them. `config` has one server, which begins with
    /// `[[server]]`; this adds its address, the directory and the metrics.
    pub fn start(config: &str, files: &[(&str, &str)]) -> Program {
        let place = tempfile::tempdir().expect("a directory");
        fs::create_dir(place.path().join("root")).expect("room");
        for (name, content) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("room");
            fs::write(path, content).expect("room");
        }
        let file = place.path().join("flash.toml");
        fs::write(&file, whole(config)).expect("room");
        let mut command = Command::new(FLASH);
        command.arg("run").arg(file);
        let started = Started::start(command);
        let address = started.address();
        Program {
            started,
            place,
            address,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn tls_address(&self) -> SocketAddr {
        self.started.tls_address()
    }

    pub fn connect(&self) -> TcpStream {
        connect_from(Ipv4Addr::LOCALHOST, self.address)
    }

    /// One request by HTTP/1.1, and the whole answer.
    pub fn ask(&self, method: &str, target: &str, fields: &str) -> Answer {
        self.ask_from(Ipv4Addr::LOCALHOST, method, target, fields)
    }

    pub fn ask_from(&self, from: Ipv4Addr, method: &str, target: &str, fields: &str) -> Answer {
        let mut stream = connect_from(from, self.address);
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        Answer::read(&mut stream)
    }

    /// The sum of a counter over all loops.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        self.started.count(name)
    }

    /// Has it load another configuration, and waits for that.
    pub fn load(&self, config: &str) {
        fs::write(self.path("flash.toml"), whole(config)).expect("room");
        self.load_again();
    }

    pub fn load_again(&self) {
        let before = self.count("flash_reloads_total");
        self.signal("-HUP");
        let loaded = || self.count("flash_reloads_total") > before;
        wait_until("the configuration is loaded", loaded);
    }

    pub fn signal(&self, signal: &str) {
        self.started.signal_named(signal);
    }

    /// Ends it, and returns what it said of errors.
    pub fn end(self) -> String {
        self.signal("-TERM");
        self.end_after_signal()
    }

    /// It has been asked to end.
    pub fn end_after_signal(self) -> String {
        let (status, errors) = self.started.wait();
        assert!(status.success(), "{errors}");
        errors
    }
}

fn whole(config: &str) -> String {
    let server = "[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"root\"\n";
    let config = config.replacen("[[server]]\n", server, 1);
    format!("metrics = \"127.0.0.1:0\"\n{config}")
}

/// The error with which `flash check` ends.
pub fn check(config: &str, files: &[(&str, &str)]) -> String {
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir(place.path().join("root")).expect("room");
    for (name, content) in files {
        fs::write(place.path().join(name), content).expect("room");
    }
    let file = place.path().join("flash.toml");
    fs::write(&file, config).expect("room");
    let mut program = Command::new(FLASH);
    let done = program.arg("check").arg(file).output().expect("it runs");
    assert!(!done.status.success());
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// All of 127.0.0.0/8 is this machine, so a client can choose its address.
pub fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&made, &SocketAddr::new(IpAddr::V4(from), 0)).expect("an address of this machine");
    rustix::net::connect(&made, &to).expect("it listens");
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// One answer with a length, of several.
    pub fn next(stream: &mut impl Read) -> Answer {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("an answer");
            bytes.push(byte[0]);
        }
        let mut answer = Answer::of(&bytes);
        let length = answer.field("Content-Length");
        let length = length.and_then(|length| length.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        stream.read_exact(&mut body).expect("a body");
        answer.body = String::from_utf8_lossy(&body).into_owned();
        answer
    }

    /// Until the server ends the connection.
    pub fn read(stream: &mut TcpStream) -> Answer {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        Answer::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_string(),
            body: body.to_string(),
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = pairs.find(|(its, _)| its.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
