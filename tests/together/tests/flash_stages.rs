// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each stage of Flash's history waits for the disk in the calls that it is known for, and in no others: the guard finds
//! what a stage claims, and does not find it in the stage that removes it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use house_together::{program, Guarded, SlowDisk};

const PATIENCE: Duration = Duration::from_secs(60);
const FILES: usize = 4;
/// Several reads of the disk: while one is under way, the kernel has pages whose bytes are not there.
const LENGTH: usize = 200_001;
/// Requests for a file while another one waits for it, and how far apart they are.
const MORE: u32 = 4;
const APART: Duration = Duration::from_millis(7);

struct Case {
    stage: &'static str,
    /// Whether the server runs as who owns the files. `mincore` tells only him.
    owns: bool,
    /// The calls in which the loop waits for the disk.
    waits_in: &'static [&'static str],
}

const fn case(stage: &'static str, owns: bool, waits_in: &'static [&'static str]) -> Case {
    Case {
        stage,
        owns,
        waits_in,
    }
}

const CASES: [Case; 11] = [
    case("original", true, &["openat2"]),
    case("original", false, &["openat2", "writev"]),
    case("sendfile", false, &["openat2", "sendfile"]),
    case("fd-passing", false, &["sendfile"]),
    case("fork-helper", true, &[]),
    case("no-mmap", true, &["sendfile"]),
    case("no-mmap", false, &["sendfile"]),
    case("direct-cgi", false, &["sendfile"]),
    case("new-sendfile", false, &[]),
    case("today", true, &[]),
    case("today", false, &[]),
];

fn get_many(address: SocketAddr, name: &str) {
    std::thread::scope(|scope| {
        for number in 0..=MORE {
            scope.spawn(move || {
                std::thread::sleep(APART * number);
                get(address, name);
            });
        }
    });
}

/// Of the server with this number, each in a directory of its own.
fn names(server: usize) -> impl Iterator<Item = String> {
    (0..FILES).map(move |number| format!("server{server}/dir{number}/file"))
}

fn get(address: SocketAddr, name: &str) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET /{name} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let is_whole = answer.starts_with(b"HTTP/1.1 200") && answer.len() > LENGTH;
    assert!(is_whole, "{name}: {} bytes", answer.len());
}

fn start(disk: &SlowDisk, number: usize, case: &Case) -> (Guarded, SocketAddr) {
    let (flash, root) = (program("flash"), disk.root());
    let mut command = vec![flash.to_str().expect("text"), "serve"];
    command.push(root.to_str().expect("text"));
    // So few open files that names are known whose files are closed.
    command.extend([
        "--listen",
        "127.0.0.1:0",
        "--loops",
        "1",
        "--open-files",
        "2",
    ]);
    command.extend(["--stage", case.stage]);
    if !case.owns {
        command.extend(["--user", "nobody"]);
    }
    let result = disk.scratch().join(format!("result{number}.json"));
    let mut guarded = Guarded::start(&result, &command);
    let out = guarded.guard.stdout.take().expect("a pipe");
    let line = BufReader::new(out).lines().next().expect("it has started");
    let line = line.expect("text");
    let address = line.strip_prefix("serving at http://").expect(&line);
    let address = address.trim_end_matches('/').parse();
    (guarded, address.expect("an address"))
}

#[test]
fn each_stage_waits_where_it_says_and_nowhere_else() {
    let all = (0..CASES.len()).flat_map(names);
    let files: Vec<_> = all.map(|name| (name, vec![b'c'; LENGTH])).collect();
    let disk = SlowDisk::up("4ms", &files);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(disk.scratch(), open).expect("it is ours");
    disk.cool();
    let each = |run: &(dyn Fn(usize, &Case) + Sync)| {
        std::thread::scope(|scope| {
            for (number, case) in CASES.iter().enumerate() {
                scope.spawn(move || run(number, case));
            }
        });
    };
    let servers = std::sync::Mutex::new(std::collections::BTreeMap::new());
    each(&|number, case| {
        let (guarded, address) = start(&disk, number, case);
        names(number).for_each(|name| get_many(address, &name));
        let mut servers = servers.lock().expect("no panic");
        servers.insert(number, (guarded, address));
    });
    disk.forget((0..CASES.len()).flat_map(names));
    each(&|number, case| {
        let server = servers.lock().expect("no panic").remove(&number);
        let (guarded, address) = server.expect("it has started");
        names(number).for_each(|name| get_many(address, &name));
        let (_, verdict) = guarded.end();
        let violations = verdict["violations"].as_array().expect("a list");
        let of_disk = violations.iter().filter(|it| it["class"] == "disk");
        let found: BTreeSet<&str> = of_disk.filter_map(|it| it["syscall"].as_str()).collect();
        let claimed: BTreeSet<&str> = case.waits_in.iter().copied().collect();
        assert_eq!(found, claimed, "{}, {}: {verdict:#}", case.stage, case.owns);
    });
}
