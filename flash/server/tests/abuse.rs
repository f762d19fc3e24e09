// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may happen to a server once: paths and links that lead out of the root, no descriptor left, no room for the log,
//! signals at any time. There are right answers or closed connections, and it serves as before afterwards.

mod running;
mod storms;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use debox_skipped::skipped;
use rustix::fs::{fadvise, Advice};
use rustix::process::{prlimit, Pid, Resource, Rlimit};
use tempfile::TempDir;

use running::{ask, Running, PATIENCE};
use storms::client::{connect, get, Got};
use storms::memory::Group;
use storms::{files, Target, SECRET};

fn start(options: &[&str]) -> (TempDir, Running, Target) {
    let place = tempfile::tempdir().expect("a directory");
    storms::fill(place.path());
    let listen = ["--listen", "127.0.0.1:0", "--list"];
    let flash = Running::start(place.path(), &[&listen[..], options].concat());
    let target = Target {
        address: flash.address(),
        tls: flash.address(),
        place: place.path().to_path_buf(),
        pid: flash.child.id(),
        end: Instant::now() + Duration::from_secs(2),
    };
    (place, flash, target)
}

/// Ends the server, which must have no reason to complain but this one.
fn end(flash: Running, complaint: &str) -> String {
    let (status, errors) = flash.end();
    assert!(status.success(), "{status}: {errors}");
    let is_expected = |line: &&str| {
        line.contains("runs as root")
            || line.contains("ending after the requests")
            || (!complaint.is_empty() && line.contains(complaint))
    };
    let others: Vec<&str> = errors.lines().filter(|line| !is_expected(line)).collect();
    assert!(others.is_empty(), "{errors}");
    errors
}

#[test]
fn no_way_to_write_a_path_leads_out_of_the_root() {
    let (_place, flash, target) = start(&[]);
    let paths = files::paths_out();
    assert!(paths.len() > 1000, "{}", paths.len());
    for path in &paths {
        files::check_path(&target, path);
    }
    end(flash, "");
}

#[test]
fn links_out_of_the_root_and_what_is_no_file_are_refused() {
    let (place, flash, target) = start(&["--precompressed", "--index", "start"]);
    let (root, outside) = (target.root(), place.path().join("outside"));
    fs::create_dir(root.join("directory")).expect("room");
    for (name, to) in [
        ("absolute", outside.join("secret.txt")),
        ("relative", "../secret.txt".into()),
        ("directory-out", outside.clone()),
        ("up", "..".into()),
        ("over", "sub/../../secret.txt".into()),
        ("chain", "relative".into()),
        ("magic", "/proc/self/root".into()),
        ("hello.txt.gz", "../secret.txt".into()),
        ("directory/start", "../../secret.txt".into()),
        ("dangling", "none".into()),
        ("loop", "loop".into()),
        ("in", "sub/../hello.txt".into()),
    ] {
        symlink(to, root.join(name)).expect("room");
    }
    let made = Command::new("mkfifo").arg(root.join("fifo")).status();
    assert!(made.expect("it can be executed").success());
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("room");
    for (path, expected) in [
        ("/absolute", 403),
        ("/relative", 403),
        ("/directory-out/", 403),
        ("/directory-out/secret.txt", 403),
        ("/up/", 403),
        ("/up/secret.txt", 403),
        ("/over", 403),
        ("/chain", 403),
        ("/magic/etc/passwd", 403),
        ("/directory/", 403),
        ("/dangling", 404),
        ("/loop", 403),
        ("/fifo", 403),
        ("/socket", 403),
        ("/in", 200),
        ("/hello.txt", 200),
    ] {
        let Got::Whole(answer) = get(target.address, path) else {
            panic!("no answer to {path}");
        };
        assert_eq!(answer.status, expected, "{path}: {}", answer.head);
        assert!(
            !String::from_utf8_lossy(&answer.body).contains(SECRET),
            "{path}"
        );
    }
    // Also not in place of a file, for a client that would take it.
    let mut stream = connect(target.address);
    let request = "GET /hello.txt HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(!text.contains(SECRET), "{text}");
    end(flash, "");
}

#[test]
fn files_that_change_have_the_promised_length_or_no_end() {
    let (_place, flash, target) = start(&[]);
    let counts = files::changing_files(&target);
    assert!(
        counts
            .iter()
            .any(|(name, count)| *name == "whole" && *count > 0),
        "{counts:?}"
    );
    end(flash, "");
}

#[test]
fn a_directory_that_becomes_a_link_never_leads_out() {
    let (_place, flash, target) = start(&[]);
    let counts = files::swapped_links(&target);
    assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
    end(flash, "");
}

#[test]
fn without_descriptors_there_is_503_or_a_pause() {
    let (_place, flash, target) = start(&["--loops", "1", "--idle", "60s"]);
    let open = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", target.pid));
        descriptors.expect("it runs").count() as u64
    };
    let limit = open() + 6;
    let pid = Pid::from_raw(target.pid as i32);
    let few = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(pid, Resource::Nofile, few).expect("it is ours");
    let mut clients: Vec<_> = (0..30).map(|_| connect(target.address)).collect();
    let began = Instant::now();
    while open() < limit {
        assert!(began.elapsed() < PATIENCE, "not all are accepted");
        thread::sleep(Duration::from_millis(10));
    }
    // All are connections, and none is left for a file.
    let mut statuses = Vec::new();
    for client in clients.iter_mut().take(4) {
        let request = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request).expect("it reads");
        let mut status = [0; 12];
        client.read_exact(&mut status).expect("an answer");
        statuses.push(String::from_utf8_lossy(&status).into_owned());
    }
    assert_eq!(statuses, ["HTTP/1.1 503"; 4]);
    drop(clients);
    let began = Instant::now();
    loop {
        match get(target.address, "/hello.txt") {
            Got::Whole(answer) if answer.status == 200 => break,
            other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
        }
    }
    end(flash, "");
}

/// Files that do not fit into the memory that the server may use, the page cache included. What sockets hold of a file
/// cannot be taken back, so there are few clients at a time.
#[test]
fn with_little_memory_all_is_served() {
    const FILES: usize = 24;
    const SIZE: usize = 8 << 20;
    // It goes after the process that is in it, also if a check fails.
    let group = match Group::new(64 << 20) {
        Ok(group) => group,
        Err(error) => {
            let why = format!("flash with little memory: no control group: {error}");
            return skipped(&why);
        }
    };
    let (place, flash, target) = start(&[]);
    group.add(target.pid).expect("its group");
    for number in 0..FILES {
        let path = place.path().join(format!("root/{number}"));
        let mut file = fs::File::create(&path).expect("room");
        let content = vec![b'a' + number as u8; SIZE];
        file.write_all(&content).expect("room");
        // What the server brings into memory is its own.
        file.sync_all().expect("a disk");
        fadvise(&file, 0, None, Advice::DontNeed).expect("a file");
    }
    let address = target.address;
    let ask_for_all = |first: usize| {
        for number in (first..FILES).chain(0..first) {
            let Got::Whole(answer) = get(address, &format!("/{number}")) else {
                panic!("{number} was cut off");
            };
            let is_right = answer.body.iter().all(|byte| *byte == b'a' + number as u8);
            assert!(is_right && answer.body.len() == SIZE, "{}", answer.head);
        }
    };
    thread::scope(|scope| {
        for first in [0, 8, 16] {
            scope.spawn(move || ask_for_all(first));
        }
    });
    end(flash, "");
}

#[test]
fn a_full_disk_costs_lines_of_the_log_and_nothing_else() {
    let (_place, flash, target) = start(&["--log", "/dev/full", "--metrics", "127.0.0.1:0"]);
    for _ in 0..100 {
        assert!(ask(target.address, "/hello.txt").ends_with("0123456789"));
    }
    let line = flash
        .said
        .iter()
        .find_map(|line| line.strip_prefix("counters at http://"));
    let metrics = line
        .and_then(|line| line.split('/').next())
        .expect("an address");
    let began = Instant::now();
    loop {
        let page = ask(metrics.parse().expect("an address"), "/metrics");
        let row = page
            .lines()
            .find(|line| line.starts_with("flash_unwritten_log_lines_total"));
        let count = row.and_then(|row| row.rsplit(' ').next()?.parse::<u64>().ok());
        if count.expect("a row") >= 100 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{page}");
        thread::sleep(Duration::from_millis(20));
    }
    let errors = end(flash, "cannot write to /dev/full");
    let said = errors.matches("cannot write").count();
    assert_eq!(said, 1, "{errors}");
}

#[test]
fn signals_at_any_time_cut_no_answer() {
    let (place, flash, mut target) = start(&[]);
    target.end = Instant::now() + Duration::from_millis(500);
    storms::signals(&target);
    // Also while the server ends: the log may be rotated then.
    let mut slow = connect(target.address);
    slow.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut first = [0; 1000];
    slow.read_exact(&mut first).expect("an answer");
    target.signal("-TERM");
    let began = Instant::now();
    while std::net::TcpStream::connect(target.address).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it still listens");
        thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..20 {
        target.signal("-HUP");
    }
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("the rest");
    assert!(rest.len() as u64 + 1000 > storms::BIG, "{}", rest.len());
    let (status, errors) = flash.wait();
    assert!(status.success(), "{status}: {errors}");
    drop(place);
}

/// They are connected as far as the kernel is concerned, also if the server has not accepted them yet.
#[test]
fn clients_in_the_queue_are_answered_at_the_end() {
    let (_place, flash, target) = start(&["--loops", "1"]);
    target.signal("-STOP");
    let clients: Vec<_> = (0..400)
        .map(|_| {
            let mut client = connect(target.address);
            let request = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).expect("the kernel has room");
            client
        })
        .collect();
    target.signal("-TERM");
    target.signal("-CONT");
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("0123456789"), "{answer}");
    }
    let (status, errors) = flash.wait();
    assert!(status.success(), "{status}: {errors}");
}
