// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the process of a server may do: whose rights it has, and what its threads are limited to.

mod running;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use debox_skipped::skipped;
use rustix::process::{getrlimit, Resource};
use tempfile::TempDir;

use running::{ask, Running, PATIENCE};

/// A directory that everybody may read.
fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.path(), open).expect("it is ours");
    fs::create_dir(place.path().join("root")).expect("room");
    fs::write(place.path().join("root/hello.txt"), "0123456789").expect("room");
    place
}

fn is_root() -> bool {
    flash::user::is_root()
}

const ANY: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn every_thread_is_limited() {
    let place = place();
    let log = place.path().join("log");
    let log_name = log.to_str().expect("text");
    let metrics = ["--metrics", "127.0.0.1:0", "--log", log_name];
    let flash = Running::start(place.path(), &[&ANY[..], &metrics].concat());
    assert!(flash.get("/hello.txt").ends_with("0123456789"));
    let threads = flash.threads();
    assert!(threads.len() >= 4, "{threads:?}");
    for thread in threads {
        let has = |name: &str| thread.get(name).map(String::as_str);
        assert_eq!(has("NoNewPrivs"), Some("1"), "{thread:?}");
        assert_eq!(has("Seccomp"), Some("2"), "{thread:?}");
    }
    let last = flash.said.last().expect("a line");
    assert!(last.ends_with("seccomp: on"), "{last}");
    let line = flash
        .said
        .iter()
        .find(|line| line.starts_with("counters at "));
    let address = line.and_then(|line| line["counters at http://".len()..].split('/').next());
    let page = ask(
        address.expect("a line").parse().expect("an address"),
        "/metrics",
    );
    assert!(page.contains("flash_sandbox{part=\"seccomp\"} 1"), "{page}");
    let has_landlock = u8::from(last.contains("Landlock: on (ABI "));
    let row = format!("flash_sandbox{{part=\"landlock\"}} {has_landlock}");
    assert!(page.contains(&row), "{page}");
    // The log's thread can open it again.
    fs::rename(&log, place.path().join("old")).expect("it is there");
    flash.signal("-HUP");
    let began = Instant::now();
    while !log.exists() {
        assert!(began.elapsed() < PATIENCE, "the log was not opened again");
        std::thread::yield_now();
    }
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
    assert!(!errors.contains("cannot"), "{errors}");
}

#[test]
fn the_sandbox_can_be_left_out() {
    let place = place();
    let flash = Running::start(place.path(), &[&ANY[..], &["--no-sandbox"]].concat());
    assert!(flash.get("/hello.txt").ends_with("0123456789"));
    for thread in flash.threads() {
        assert_eq!(thread.get("Seccomp").map(String::as_str), Some("0"));
    }
    let last = flash.said.last().expect("a line");
    assert_eq!(
        last,
        "sandbox: Landlock: off (--no-sandbox); seccomp: off (--no-sandbox)"
    );
}

#[test]
fn the_log_may_be_a_pipe() {
    let place = place();
    let plain = Running::start(place.path(), &ANY);
    let log = ["--log", "/dev/stdout"];
    let piped = Running::start(place.path(), &[&ANY[..], &log].concat());
    assert_eq!(piped.said.last(), plain.said.last());
    assert!(piped.get("/hello.txt").ends_with("0123456789"));
}

/// A port that only root may open.
fn low_port() -> Option<SocketAddr> {
    let ports = (600..1024).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    ports
        .into_iter()
        .find(|address| TcpListener::bind(address).is_ok())
}

#[test]
fn root_opens_the_port_and_becomes_another() {
    let (true, Some(address)) = (is_root(), low_port()) else {
        return skipped("becoming another user: the test does not run as root");
    };
    let place = place();
    let arguments = ["--listen", &address.to_string(), "--user", "nobody:daemon"];
    let flash = Running::start(place.path(), &arguments);
    assert!(flash.get("/hello.txt").ends_with("0123456789"));
    fs::write(place.path().join("root/secret"), "").expect("room");
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.path().join("root/secret"), closed).expect("it is ours");
    assert!(flash.get("/secret").starts_with("HTTP/1.1 403 "));
    let number = |file: &str, name: &str| {
        let text = fs::read_to_string(file).expect("it is there");
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")));
        let number = line.and_then(|line| line.split(':').nth(2));
        number.expect("a number").to_string()
    };
    let (user, group) = (
        number("/etc/passwd", "nobody"),
        number("/etc/group", "daemon"),
    );
    for thread in flash.threads() {
        for (name, value) in [("Uid", &user), ("Gid", &group)] {
            // Real, effective, saved, and of the file system.
            let all = [value.as_str(); 4].join("\t");
            assert_eq!(thread.get(name), Some(&all), "{thread:?}");
        }
        for rights in ["CapPrm", "CapEff", "CapAmb"] {
            let none = Some("0000000000000000");
            assert_eq!(thread.get(rights).map(String::as_str), none, "{thread:?}");
        }
        let groups = thread.get("Groups").expect("a line");
        assert!(!groups.split(' ').any(|group| group == "0"), "{groups}");
    }
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
    assert!(!errors.contains("runs as root"), "{errors}");
}

#[test]
fn what_the_user_may_not_do_is_said_at_the_start() {
    if !is_root() {
        return skipped("becoming another user: the test does not run as root");
    }
    let place = place();
    let pair = rcgen::generate_simple_self_signed(vec!["a".to_string()]).expect("a certificate");
    let (cert, key) = (place.path().join("cert"), place.path().join("key"));
    fs::write(&cert, pair.cert.pem()).expect("room");
    fs::write(&key, pair.signing_key.serialize_pem()).expect("room");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let names = [&cert, &key].map(|path| path.to_str().expect("text"));
    let tls = [
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        names[0],
        "--tls-key",
        names[1],
    ];
    let user = ["--user", "nobody"];
    let flash = Running::start(place.path(), &[&tls[..], &user].concat());
    assert!(
        flash.said[0].starts_with("serving at https://"),
        "{:?}",
        flash.said
    );
    let (_, errors) = flash.end();
    assert!(
        errors.contains("nobody will not be able to load certificates again"),
        "{errors}"
    );
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.path(), closed).expect("it is ours");
    let flash = Running::start(place.path(), &[&ANY[..], &user].concat());
    let (status, errors) = flash.wait();
    assert!(!status.success());
    assert!(errors.contains("cannot open the directory"), "{errors}");
}

/// A shared table that grows makes the thread wait that needs the next descriptor.
#[test]
fn the_table_of_descriptors_has_its_size_from_the_start() {
    let place = place();
    // As many as the limit of open files allows, and fewer.
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX) as usize;
    let room = flash::server::room_for_connections(2, 0).min(100_000);
    for connections in [room, room.min(2000)] {
        let wanted = connections.to_string();
        let options = [&ANY[..], &["--loops", "2", "--connections", &wanted]].concat();
        let flash = Running::start(place.path(), &options);
        let size = |thread: &BTreeMap<String, String>| thread["FDSize"].parse::<usize>();
        let mut sizes = flash.threads().into_iter().flat_map(|thread| size(&thread));
        let least = files.min(2 * connections);
        assert!(sizes.all(|size| size >= least), "{connections}");
    }
}
