// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that are slow on purpose: they may hold their own connections, for a while, and nobody else's.

mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use debox_skipped::skipped;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use tempfile::TempDir;

use running::{ask, connect, get, wait_until, Running, Started, FLASH, PATIENCE};

/// What a client may take for a head or a body here.
const SHORT: Duration = Duration::from_secs(2);
/// Connections of a test, if the limit of open files allows it.
fn many() -> usize {
    flash::server::room_for_connections(2, 0).min(2000)
}

fn start(connections: &str) -> (TempDir, Running) {
    // Raises the limit of open files, also for the server.
    many();
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir(place.path().join("root")).expect("room");
    fs::write(place.path().join("root/hello.txt"), "0123456789").expect("room");
    let big = fs::File::create(place.path().join("root/big")).expect("room");
    big.set_len(50_000_000).expect("room");
    let options = [
        ["--listen", "127.0.0.1:0"],
        ["--head", "2s"],
        ["--connections", connections],
    ];
    let flash = Running::start(place.path(), &options.concat());
    (place, flash)
}

/// `None`: slowhttptest is not installed.
fn slowhttptest(address: SocketAddr, target: &str, options: &[&str]) -> Option<String> {
    let output = Command::new("slowhttptest")
        .args(["-c", "400", "-r", "400", "-i", "1", "-p", "30", "-l", "20"])
        .args(options)
        .arg("-u")
        .arg(format!("http://{address}{target}"))
        .output();
    match output {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            skipped("flash with slow clients: slowhttptest is not installed");
            None
        }
    }
}

fn check(mode: &str, target: &str, more: &[&str], ends_early: bool) {
    let (_place, flash) = start("3000");
    let Some(said) = slowhttptest(flash.address(), target, &[&[mode], more].concat()) else {
        return;
    };
    assert!(said.contains("YES"), "{said}");
    assert!(!said.contains("NO\n") && !said.contains("Cannot"), "{said}");
    if ends_early {
        assert!(said.contains("No open connections left"), "{said}");
    }
    assert!(ask(flash.address(), "/hello.txt").ends_with("0123456789"));
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

#[test]
fn slow_heads_are_given_up_and_others_are_served() {
    check("-H", "/hello.txt", &[], true);
}

#[test]
fn slow_bodies_are_given_up_and_others_are_served() {
    check("-B", "/hello.txt", &["-s", "8192"], true);
}

#[test]
fn many_ranges_do_not_multiply_the_work() {
    check(
        "-R",
        "/big",
        &["-a", "5", "-b", "3000", "-t", "GET", "-l", "5"],
        false,
    );
}

#[test]
fn slow_readers_do_not_hinder_others() {
    let slow = [
        "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3", "-l", "5",
    ];
    check("-X", "/big", &slow, false);
}

/// Resident memory of the process, in bytes.
fn resident(flash: &Running) -> u64 {
    let path = format!("/proc/{}/statm", flash.child.id());
    let text = fs::read_to_string(path).expect("it runs");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}

#[test]
fn heads_in_single_bytes_each_have_their_time() {
    let (_place, flash) = start("3000");
    let began = Instant::now();
    let mut clients: Vec<TcpStream> = (0..many()).map(|_| connect(flash.address())).collect();
    let head = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nX: ";
    let mut at = 0;
    // Longer than the server waits for a head, however often a byte comes.
    while began.elapsed() < SHORT * 2 {
        let byte = [head.get(at).copied().unwrap_or(b'x')];
        for client in &mut clients {
            let _ = client.write(&byte);
        }
        at += 1;
        assert!(ask(flash.address(), "/hello.txt").ends_with("0123456789"));
    }
    for mut client in clients {
        let mut answer = Vec::new();
        let read = client.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 408 "), "{read:?}");
    }
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

/// Each holds a large file open and has a full socket; none may have the file in the server's memory.
#[test]
fn readers_that_stop_cost_little_memory() {
    let (_place, flash) = start("3000");
    let before = resident(&flash);
    let mut clients = Vec::new();
    for _ in 0..many() {
        let mut client = connect(flash.address());
        let _ = set_socket_recv_buffer_size(&client, 4096);
        client
            .write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("the server reads");
        clients.push(client);
    }
    for client in &mut clients {
        let mut first = [0; 12];
        client.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    assert!(ask(flash.address(), "/hello.txt").ends_with("0123456789"));
    let each = resident(&flash).saturating_sub(before) / many() as u64;
    assert!(each < 64 << 10, "{each} bytes for each slow reader");
    drop(clients);
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

/// Under a low limit of open files most connections may be idle. Who asks for a file when no descriptor is left for it gets
/// 503, and no other request fails.
#[test]
fn idle_connections_need_no_second_descriptor() {
    const LIMIT: usize = 800;
    const IDLE: usize = 300;
    let place = tempfile::tempdir().expect("a directory");
    fs::create_dir(place.path().join("root")).expect("room");
    fs::write(place.path().join("root/hello.txt"), "0123456789").expect("room");
    let big = fs::File::create(place.path().join("root/big")).expect("room");
    big.set_len(50_000_000).expect("room");
    let mut command = Command::new("prlimit");
    command.args([&format!("--nofile={LIMIT}"), FLASH, "serve"]);
    command.arg(place.path().join("root"));
    command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    command.args(["--loops", "1"]);
    let flash = Started::start(command);
    let ask = |client: &mut TcpStream, target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut status = [0; 12];
        client.read_exact(&mut status).expect("an answer");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let mut idle: Vec<TcpStream> = (0..IDLE).map(|_| connect(flash.address())).collect();
    for client in &mut idle {
        assert_eq!(ask(client, "/hello.txt"), "200");
    }
    assert_eq!(flash.count("flash_connections"), IDLE as u64 + 1);
    idle.truncate(10);
    wait_until("most have gone", || flash.count("flash_connections") == 11);
    // Each keeps its file open until its client reads on.
    let (mut readers, mut refused) = (Vec::new(), None);
    while refused.is_none() && readers.len() < IDLE {
        let mut reader = connect(flash.address());
        set_socket_recv_buffer_size(&reader, 4096).expect("a socket");
        match ask(&mut reader, "/big").as_str() {
            "200" => readers.push(reader),
            _ => refused = Some(reader),
        }
    }
    assert!((100..200).contains(&readers.len()), "{}", readers.len());
    assert!(flash.descriptors() < LIMIT);
    let mut refused = refused.expect("not all find a descriptor");
    let mut answer = [0; 256];
    let length = refused.read(&mut answer).expect("the rest");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.contains("Retry-After: 1"), "{answer}");
    drop(readers);
    wait_until("files are served again", || {
        get(flash.address(), "/hello.txt").ends_with("0123456789")
    });
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

/// When there is no room for a further connection, clients wait in the socket's queue, and are served once there is.
#[test]
fn a_full_server_serves_again() {
    let (_place, flash) = start("50");
    let silent: Vec<TcpStream> = (0..200).map(|_| connect(flash.address())).collect();
    let began = Instant::now();
    assert!(ask(flash.address(), "/hello.txt").ends_with("0123456789"));
    assert!(began.elapsed() < PATIENCE);
    drop(silent);
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}
