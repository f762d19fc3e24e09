// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the requests of flash/conformance/requests, each in one piece and cut into pieces, and checks the answers.
//! The format of the files is described in flash/conformance/README.md.

#[path = "conformance/answers.rs"]
mod answers;
#[path = "conformance/corpus.rs"]
mod corpus;

use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use answers::Answer;
use corpus::{End, Entry};
use flash::server::{Plan, Server};
use flash::sites::{FileOptions, VirtualHost};

const PATIENCE: Duration = Duration::from_secs(30);
/// Sun, 06 Nov 1994 08:49:37 GMT
const MODIFIED: u64 = 784_111_777;
/// Tells whether the connection is still open, and where the server thinks that the next request begins.
const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn write(root: &Path, name: &str, content: &str, modified: SystemTime) {
    fs::write(root.join(name), content).expect("room");
    let file = File::options().write(true).open(root.join(name));
    let times = FileTimes::new().set_modified(modified);
    file.and_then(|file| file.set_times(times)).expect("a file");
}

fn fill(root: &Path) {
    let modified = UNIX_EPOCH + Duration::from_secs(MODIFIED);
    fs::create_dir_all(root.join("sub/deep")).expect("room");
    for (name, content) in [
        ("index.html", "the index\n"),
        ("hello.txt", "0123456789"),
        ("coded.txt", "plain"),
        ("coded.txt.gz", "gzip!"),
        ("coded.txt.br", "brotli"),
        ("empty", ""),
        ("a b.txt", "space"),
        ("100%", "percent"),
        ("back\\slash", "backslash"),
        ("sub/index.html", "below\n"),
        (".hidden", "secret"),
        ("probe", "probe"),
    ] {
        write(root, name, content, modified);
    }
    let later = SystemTime::now() + Duration::from_secs(86_400);
    write(root, "future", "tomorrow", later);
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).expect("room");
    std::os::unix::fs::symlink("hello.txt", root.join("in")).expect("room");
}

/// Pieces of one byte, or of many for long requests; the sizes differ, but not from run to run.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let mut random = bytes.len() as u64;
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let size = match bytes.len() {
            ..600 => 1,
            _ => (random >> 54) as usize + 1,
        };
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn exchange(address: SocketAddr, pieces: &[&[u8]]) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    // The server may have ended the connection already: what it answered tells.
    let _ = pieces.iter().try_for_each(|piece| stream.write_all(piece));
    let _ = stream.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => Ok(received),
        Err(error) => Err(format!("{error}")),
    }
}

fn check(entry: &Entry, address: SocketAddr, etag: &str, is_cut: bool) -> Result<(), String> {
    let mut bytes = entry.bytes(etag);
    if entry.end != End::Wait {
        bytes.extend_from_slice(PROBE);
    }
    let received = match is_cut {
        true => exchange(address, &pieces(&bytes))?,
        false => exchange(address, &[&bytes])?,
    };
    let text = || String::from_utf8_lossy(&received).into_owned();
    let mut rest = received.as_slice();
    for (number, expected) in entry.answers.iter().enumerate() {
        let answer = Answer::take(&mut rest, expected.is_head)
            .map_err(|error| format!("answer {number}: {error}\n{}", text()))?;
        if !expected.statuses.contains(&answer.status) {
            return Err(format!("answer {number} is {}\n{}", answer.status, text()));
        }
        answer
            .check()
            .map_err(|error| format!("{error}\n{}", text()))?;
        let is_last = number + 1 == entry.answers.len();
        if is_last && (answer.field("connection") == Some("close")) != (entry.end == End::Close) {
            return Err(format!("its Connection field is wrong\n{}", text()));
        }
        if number == 0 {
            for wanted in &entry.checks {
                wanted
                    .hold(&answer)
                    .map_err(|error| format!("{error}\n{}", text()))?;
            }
        }
    }
    if entry.end == End::Open {
        let probe = Answer::take(&mut rest, false)
            .map_err(|error| format!("no probe: {error}\n{}", text()))?;
        if (probe.status, probe.body.as_slice()) != (200, b"probe") {
            return Err(format!(
                "the probe was answered with {}\n{}",
                probe.status,
                text()
            ));
        }
    }
    match rest {
        [] => Ok(()),
        _ => Err(format!("more than was expected:\n{}", text())),
    }
}

#[test]
fn every_request_of_the_corpus_has_its_answer() {
    let place = tempfile::tempdir().expect("a directory");
    fill(place.path());
    let host = VirtualHost::of_directory(
        place.path().to_path_buf(),
        vec![([127, 0, 0, 1], 0).into()],
        FileOptions {
            precompressed: true,
            ..FileOptions::default()
        },
    );
    let server = Server::start(Plan {
        loops: 2,
        helpers: 4,
        ..Plan::of(vec![host])
    })
    .expect("it starts");
    let address = server.addresses()[0];
    let first = exchange(address, &[b"HEAD /hello.txt HTTP/1.0\r\n\r\n"]).expect("an answer");
    let first = Answer::take(&mut first.as_slice(), true).expect("an answer");
    let etag = first.field("etag").expect("a tag");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/requests");
    let entries = corpus::read(&folder);
    assert!(entries.len() >= 300, "{} entries", entries.len());
    let mut wrong = Vec::new();
    for entry in &entries {
        for is_cut in [false, true] {
            if let Err(error) = check(entry, address, etag, is_cut) {
                let how = if is_cut { "in pieces" } else { "in one piece" };
                wrong.push(format!("{} {how}: {error}\n", entry.name));
            }
        }
    }
    server.end().expect("no loop failed");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
