// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a server that serves others meanwhile. Each storm goes on until its time is over, checks every answer
//! that it gets, and returns what it counted. A wrong answer is a panic.

// No test needs all of it.
#![allow(dead_code)]

pub mod client;
pub mod files;
pub mod memory;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::{connect, get, Got};

/// What no client may see: it is in files beside the root.
pub const SECRET: &str = "this is the secret";
pub const BIG: u64 = 8 << 20;
/// Connections that one storm holds at once.
const HELD: usize = 60;

pub type Counts = Vec<(&'static str, u64)>;

#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub tls: SocketAddr,
    /// `root` and `outside` are in it.
    pub place: PathBuf,
    pub pid: u32,
    pub end: Instant,
}

impl Target {
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    pub fn root(&self) -> PathBuf {
        self.place.join("root")
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.pid.to_string();
        let done = Command::new("kill").args([signal, &pid]).status();
        assert!(done.expect("kill can be executed").success());
    }
}

/// Numbers that differ from run to run of a storm, but not from test to test.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        let (factor, more) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(more);
        self.0 >> 33
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// The files of a place: those that are served, and those that must not be.
pub fn fill(place: &Path) {
    let (root, outside) = (place.join("root"), place.join("outside"));
    for directory in [root.join("sub"), outside.clone()] {
        std::fs::create_dir_all(directory).expect("room");
    }
    let big = std::fs::File::create(root.join("big")).expect("room");
    big.set_len(BIG).expect("room");
    std::fs::write(root.join("hello.txt"), "0123456789").expect("room");
    for name in ["secret.txt", "passwd", "index.html"] {
        std::fs::write(outside.join(name), SECRET).expect("room");
    }
    std::fs::write(place.join("secret.txt"), SECRET).expect("room");
    std::fs::write(root.join(".hidden"), SECRET).expect("room");
}

/// A client like any other, which has all its answers in time whatever others do.
pub fn ordinary(target: &Target) -> Counts {
    let (mut answers, mut busy, mut longest_ms) = (0, 0, 0);
    while target.goes_on() {
        let began = Instant::now();
        match get(target.address, "/hello.txt") {
            Got::Whole(answer) if answer.status == 503 => busy += 1,
            Got::Whole(answer) => {
                assert_eq!(
                    (answer.status, answer.body.as_slice()),
                    (200, &b"0123456789"[..])
                );
                answers += 1;
            }
            other => panic!("an ordinary client got {other:?}"),
        }
        match get(target.address, "/big") {
            Got::Whole(answer) if answer.status == 503 => busy += 1,
            Got::Whole(answer) => assert_eq!(answer.body.len() as u64, BIG),
            other => panic!("an ordinary client got {other:?}"),
        }
        longest_ms = longest_ms.max(began.elapsed().as_millis() as u64);
    }
    vec![
        ("answers", answers),
        ("busy", busy),
        ("longest ms", longest_ms),
    ]
}

/// Heads that never end.
pub fn slow_heads(target: &Target) -> Counts {
    let (mut opened, mut refused) = (0, 0);
    while target.goes_on() {
        let mut clients: Vec<TcpStream> = (0..HELD).map(|_| connect(target.address)).collect();
        opened += clients.len() as u64;
        let began = Instant::now();
        while target.goes_on() && began.elapsed() < Duration::from_secs(3) {
            for client in &mut clients {
                let _ = client.write(b"G");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for mut client in clients {
            let mut answer = Vec::new();
            let _ = client.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = client.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "));
            refused += u64::from(!answer.is_empty());
        }
    }
    vec![("opened", opened), ("given up", refused)]
}

/// Readers that take a little, and go.
pub fn slow_readers(target: &Target) -> Counts {
    let mut opened = 0;
    while target.goes_on() {
        let mut clients: Vec<TcpStream> = (0..HELD).map(|_| connect(target.address)).collect();
        opened += clients.len() as u64;
        for client in &mut clients {
            let _ = client.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let began = Instant::now();
        while target.goes_on() && began.elapsed() < Duration::from_secs(2) {
            for client in &mut clients {
                let _ = client.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = client.read(&mut [0; 100]);
            }
        }
    }
    vec![("opened", opened)]
}

/// Requests that end anywhere, often with a reset.
pub fn cut_requests(target: &Target) -> Counts {
    let whole = b"POST /hello.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
        GET /big HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9,20-29\r\n\r\nHEAD /none HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut random = Random(1);
    let mut sent = 0;
    while target.goes_on() {
        let mut client = connect(target.address);
        let mut bytes = whole[..random.below(whole.len() as u64) as usize].to_vec();
        if let (Some(place), 0) = (bytes.last_mut(), random.below(4)) {
            *place = random.below(256) as u8;
        }
        let _ = client.write_all(&bytes);
        if random.below(2) == 0 {
            // The answer stays unread, so the kernel sends a reset.
            let _ = client.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = client.read(&mut [0; 1]);
        }
        sent += 1;
    }
    vec![("sent", sent)]
}

/// Heads, targets and bodies that are too long, each of which has its own status.
pub fn oversized(target: &Target) -> Counts {
    let long = "a".repeat(40_000);
    let many = "X: y\r\n".repeat(200);
    let asked = [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), "414"),
        (format!("{long} / HTTP/1.1\r\nHost: a\r\n\r\n"), "501"),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            "431",
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), "431"),
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n{long}"),
            "405",
        ),
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;{long}\r\n"),
            "400",
        ),
    ];
    let mut sent = 0;
    while target.goes_on() {
        for (request, status) in &asked {
            let mut client = connect(target.address);
            client.write_all(request.as_bytes()).expect("it reads");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
            sent += 1;
        }
    }
    vec![("sent", sent)]
}

/// What is no handshake, at the port for TLS.
pub fn broken_handshakes(target: &Target) -> Counts {
    let mut random = Random(2);
    let mut sent = 0;
    while target.goes_on() {
        let mut client = connect(target.tls);
        let mut bytes: Vec<u8> = (0..random.below(300))
            .map(|_| random.next() as u8)
            .collect();
        // Records of the right type, with any content.
        for (place, byte) in bytes.iter_mut().zip([22, 3, 1, 0, 200, 1, 0, 0, 196]) {
            *place = byte;
        }
        let _ = client.write_all(&bytes);
        let _ = client.set_read_timeout(Some(Duration::from_millis(1)));
        let _ = client.read(&mut [0; 100]);
        sent += 1;
    }
    vec![("sent", sent)]
}

/// The log is moved away, and the server is told so, as often as possible.
pub fn signals(target: &Target) -> Counts {
    let (mut sent, mut moved) = (0, 0);
    while target.goes_on() {
        if sent % 50 == 0 {
            let to = target.place.join(format!("logs/old.{moved}"));
            moved += u64::from(std::fs::rename(target.place.join("logs/log"), to).is_ok());
        }
        target.signal("-HUP");
        sent += 1;
    }
    vec![("sent", sent), ("logs moved", moved)]
}
