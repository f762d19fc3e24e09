// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stages of Flash's history answer as today's server does, and files may be changed and truncated under them.
// Both helpers stand on the same one.
#![allow(clippy::duplicate_mod)]

mod applications;
mod page;
#[path = "../program/mod.rs"]
mod program;
#[path = "../running/mod.rs"]
mod running;
mod scripts;
#[path = "../applications/support.rs"]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use program::Program;
use running::{Running, PATIENCE};

fn bytes(length: usize) -> Vec<u8> {
    let byte = |n: usize| (n.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..length).map(byte).collect()
}

/// Lengths around those at which the server sends in another way.
const LENGTHS: [usize; 9] = [
    0, 1, 4096, 10_000, 32_768, 32_769, 262_144, 262_145, 1_500_000,
];

fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().join("root");
    fs::create_dir_all(root.join("sub/deep")).expect("room");
    fs::create_dir(root.join("list")).expect("room");
    fs::write(root.join("sub/index.html"), "the index\n").expect("room");
    fs::write(root.join("list/a"), "a").expect("room");
    fs::write(root.join("list/page.html"), bytes(3000)).expect("room");
    fs::write(root.join("list/page.html.gz"), bytes(700)).expect("room");
    fs::write(root.join(".secret"), "x").expect("room");
    symlink("/etc/passwd", root.join("out")).expect("room");
    symlink("sub/index.html", root.join("in")).expect("room");
    for length in LENGTHS {
        fs::write(root.join(format!("{length}.bin")), bytes(length)).expect("room");
    }
    place
}

/// What is sent on one connection each.
fn requests() -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |method: &str, target: &str, fields: &str| {
        all.push(format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"
        ));
    };
    for length in LENGTHS {
        add("GET", &format!("/{length}.bin"), "");
        add("HEAD", &format!("/{length}.bin"), "");
        add(
            "GET",
            &format!("/{length}.bin"),
            "Range: bytes=4000-5000\r\n",
        );
    }
    let ranges = [
        "bytes=-70000",
        "bytes=262140-",
        "bytes=0-0,4095-4096,300000-700000",
        "bytes=2000000-",
    ];
    for range in ranges {
        add("GET", "/1500000.bin", &format!("Range: {range}\r\n"));
    }
    for target in [
        "/sub",
        "/sub/",
        "/list/",
        "/in",
        "/out",
        "/none",
        "/none/a",
        "/.secret",
        "/../etc",
        "/1.bin/",
        "/%00",
        "/sub/deep/",
    ] {
        add("GET", target, "");
        add("HEAD", target, "");
    }
    add("GET", "/list/page.html", "Accept-Encoding: gzip\r\n");
    add("GET", "/list/page.html", "");
    add(
        "GET",
        "/10000.bin",
        "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n",
    );
    add("GET", "/10000.bin", "If-None-Match: *\r\n");
    add("GET", "/10000.bin", "If-Match: \"none\"\r\n");
    add("OPTIONS", "/10000.bin", "");
    add("POST", "/10000.bin", "Content-Length: 3\r\n");
    let on_one = ["/1.bin", "/262145.bin", "/none", "/10000.bin"];
    let mut pipelined: String = on_one
        .iter()
        .map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    pipelined += "GET / HTTP/1.0\r\n\r\n";
    all.push(pipelined);
    all
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn send(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    answer
}

/// An answer without what differs each time: the date, and the separator of multipart answers.
fn comparable(mut answer: Vec<u8>) -> Vec<u8> {
    for (begin, length) in [(&b"\r\nDate: "[..], 29), (b"part-", 16)] {
        let mut from = 0;
        let of = |answer: &[u8], from: usize| {
            let rest = answer[from..].windows(begin.len());
            rest.enumerate()
                .find(|(_, it)| *it == begin)
                .map(|(at, _)| from + at + begin.len())
        };
        while let Some(at) = of(&answer, from) {
            let end = (at + length).min(answer.len());
            answer[at..end].fill(b'-');
            from = end;
        }
    }
    answer
}

fn stages() -> Vec<String> {
    let mut flash = Command::new(env!("CARGO_BIN_EXE_flash"));
    let output = flash.args(["stages", "--format", "json"]).output();
    let output = output.expect("it can be executed");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let listed = listed["stages"].as_array().expect("a list").clone();
    let name = |stage: &serde_json::Value| stage["name"].as_str().expect("a name").to_string();
    listed.iter().map(name).collect()
}

fn start(place: &Path, stage: &str, more: &[&str]) -> Running {
    let options = ["--listen", "127.0.0.1:0", "--stage", stage, "--loops", "1"];
    let flash = Running::start(place, &[&options[..], more].concat());
    let sandbox = flash.said.last().expect("it has started");
    assert!(sandbox.contains("seccomp: on"), "{stage}: {sandbox}");
    flash
}

fn end(flash: Running, stage: &str) {
    let (status, errors) = flash.end();
    assert!(status.success(), "{stage}: {status}: {errors}");
}

#[test]
fn each_stage_answers_byte_for_byte_as_todays() {
    let place = place();
    let more = ["--list", "--precompressed"];
    let requests = requests();
    let stages = stages();
    assert_eq!(stages.len(), 8, "{stages:?}");
    let today = start(place.path(), "today", &more);
    let ask = |flash: &Running, request: &String| comparable(send(flash.address(), request));
    let expected: Vec<Vec<u8>> = requests.iter().map(|it| ask(&today, it)).collect();
    let is_whole = |answer: &Vec<u8>| answer.len() > 1_500_000;
    assert!(expected.iter().filter(|it| is_whole(it)).count() == 1);
    std::thread::scope(|scope| {
        for stage in &stages {
            let (requests, expected) = (&requests, &expected);
            let place = place.path();
            scope.spawn(move || {
                let flash = start(place, stage, &more);
                // The second time, what a stage remembers of the first one is used.
                for round in 0..2 {
                    for (request, expected) in requests.iter().zip(expected) {
                        let answer = comparable(send(flash.address(), request));
                        assert!(answer == *expected, "{stage}, {round}: {request}");
                    }
                }
                end(flash, stage);
            });
        }
    });
    end(today, "today");
}

/// A client that has read a part when the file is cut must not get the whole length, and the server lives on.
#[test]
fn a_file_that_is_truncated_while_it_is_mapped_ends_one_connection_only() {
    std::thread::scope(|scope| {
        for stage in stages() {
            scope.spawn(move || truncate(&stage));
        }
    });
}

fn truncate(stage: &str) {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().join("root");
    fs::create_dir(&root).expect("room");
    let (big, small) = (root.join("big"), root.join("small"));
    fs::write(&big, bytes(30_000_000)).expect("room");
    fs::write(&small, bytes(3000)).expect("room");
    let flash = start(place.path(), stage, &["--open-file-check", "200ms"]);
    let get = |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        send(flash.address(), &request)
    };
    assert!(get("/small").ends_with(&bytes(3000)), "{stage}");
    let mut slow = connect(flash.address());
    slow.write_all(b"GET /big HTTP/1.0\r\n\r\n")
        .expect("it reads");
    let mut first = vec![0; 100_000];
    slow.read_exact(&mut first).expect("the begin");
    for path in [&big, &small] {
        let file = fs::File::options().write(true).open(path);
        file.expect("it is there").set_len(1).expect("it is ours");
    }
    let mut rest = Vec::new();
    // An end or a reset: which one depends on what the client still sends.
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.len() < 29_000_000, "{stage}: {}", rest.len());
    std::thread::sleep(Duration::from_millis(250));
    let answer = get("/small");
    assert!(answer.ends_with(b"\r\n\r\n\0"), "{stage}: {answer:?}");
    let answer = get("/big");
    assert!(answer.ends_with(b"\r\n\r\n\0"), "{stage}: {answer:?}");
    end(flash, stage);
}

fn descriptors(flash: &Running) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", flash.child.id()));
    all.expect("it runs").count()
}

/// With today's opening, and with that by helpers.
#[test]
fn files_are_kept_open_for_a_while_and_not_too_many() {
    for stage in ["today", "fd-passing", "original"] {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().join("root");
        fs::create_dir(&root).expect("room");
        let name = |number: usize| root.join(format!("{number}"));
        for number in 0..50 {
            fs::write(name(number), format!("old {number}")).expect("room");
        }
        let options = ["--open-files", "16", "--open-file-check", "300ms"];
        let flash = start(place.path(), stage, &options);
        let before = descriptors(&flash);
        for number in 0..50 {
            assert!(flash
                .get(&format!("/{number}"))
                .ends_with(&format!("old {number}")));
        }
        let kept = descriptors(&flash) - before;
        assert!((8..=20).contains(&kept), "{stage}: {kept}");
        fs::write(root.join("new"), "new").expect("room");
        fs::rename(root.join("new"), name(49)).expect("room");
        fs::remove_file(name(48)).expect("it is there");
        std::thread::sleep(Duration::from_millis(350));
        assert!(flash.get("/49").ends_with("new"), "{stage}");
        assert!(flash.get("/48").starts_with("HTTP/1.1 404"), "{stage}");
        end(flash, stage);
    }
}

#[test]
fn the_stage_is_a_setting_and_can_be_changed() {
    let files = [("root/a", "the content")];
    let of = |stage: &str| {
        format!("stage = \"{stage}\"\nopen_files = {{ most = 100, check = \"2s\" }}\n[[server]]\n")
    };
    let flash = Program::start(&of("original"), &files);
    assert_eq!(flash.ask("GET", "/a", "").body, "the content");
    flash.load(&of("no-mmap"));
    assert_eq!(flash.ask("GET", "/a", "").body, "the content");
    flash.load("[[server]]\n");
    assert_eq!(flash.ask("GET", "/a", "").body, "the content");
    let refused = Command::new(env!("CARGO_BIN_EXE_flash"))
        .args(["serve", ".", "--stage", "flash"])
        .output()
        .expect("it can be executed");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("fd-passing"),
        "{text}"
    );
}
