// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration changes while clients are served.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use debox_skipped::skipped;
use nix::sys::signal::Signal;

use crate::load::{Client, Load};
use crate::running::{big, connect, get, wait_until, Place, Running};

fn config(root: &str, loops: usize) -> String {
    format!(
        "loops = {loops}\nhelpers = 4\nlog = \"logs/log\"\nmetrics = \"127.0.0.1:0\"\n\
         [[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{root}\"\n"
    )
}

fn wait_for_calm(flash: &Running) {
    wait_until("the end of earlier configurations", || {
        flash.count("flash_configurations_draining") == 0
    });
}

/// Has the kernel give up the pages of a file, where its file system has any on a disk.
fn forget(path: &Path) {
    let file = File::open(path).expect("it is there");
    file.sync_all().expect("a disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
}

#[test]
fn no_request_is_lost_by_fifty_reloads() {
    let place = Place::new(&config("a", 2));
    let flash = Running::start(&place);
    // Slower than all reloads.
    let mut slow = connect(flash.address());
    slow.write_all(b"GET /big HTTP/1.0\r\n\r\n")
        .expect("it reads");
    let load = Load::start(flash.address(), 4);
    for turn in 0..50 {
        let root = if turn % 2 == 0 { "b" } else { "a" };
        place.configure(&config(root, 1 + turn % 3));
        // A helper has to look for this one, and to read that.
        let mut cold = connect(flash.address());
        let request = format!("GET /none-{turn} HTTP/1.0\r\n\r\n");
        cold.write_all(request.as_bytes()).expect("it reads");
        forget(&place.at("a/index.html"));
        flash.reload();
        let mut answer = String::new();
        cold.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    assert!(load.end() > 0);
    assert_eq!(flash.count("flash_reloads_total"), 50, "{}", flash.errors());
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).expect("the rest");
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let body = &answer[body.expect("a head") + 4..];
    assert!(body == big(), "{} bytes came", body.len());
    wait_for_calm(&flash);
    wait_until(
        "connections other than the one that asks have ended",
        || flash.count("flash_connections") == 1,
    );
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

#[test]
fn an_open_connection_is_served_the_new_configuration() {
    let place = Place::new(&config("a", 2));
    let flash = Running::start(&place);
    let mut client = Client::new(flash.address());
    assert_eq!(client.ask(), "of a\n");
    let requests = flash.count("flash_requests_total");
    // A directory that no thread could reach before.
    place.configure(&config("b", 1));
    flash.reload();
    assert_eq!(client.ask(), "of b\n");
    assert!(flash.count("flash_requests_total") > requests);
    assert!(get(flash.address(), "/big").starts_with("HTTP/1.1 404 "));
}

/// Loops hand connections over in pieces. All of these ask meanwhile, twice.
#[test]
fn many_connections_are_handed_over_and_none_is_lost() {
    let place = Place::new(&config("a", 2));
    let flash = Running::start(&place);
    let mut clients: Vec<Client> = (0..400).map(|_| Client::new(flash.address())).collect();
    for turn in 0..4 {
        let root = if turn % 2 == 0 { "b" } else { "a" };
        place.configure(&config(root, 1 + turn % 2));
        flash.signal(Signal::SIGHUP);
        for client in &mut clients {
            let answer = client.ask();
            assert!(answer.starts_with("of "), "{answer}");
        }
        wait_until("all are served the new configuration", || {
            let new = format!("of {root}\n");
            clients.iter_mut().all(|client| client.ask() == new)
        });
    }
    // And the one that reads the counter.
    wait_until("no connection was opened again", || {
        flash.count("flash_connections") == 401
    });
    wait_for_calm(&flash);
}

#[test]
fn a_storm_of_signals_loses_and_leaks_nothing() {
    let place = Place::new(&config("a", 2));
    let flash = Running::start(&place);
    flash.reload();
    wait_for_calm(&flash);
    let load = Load::start(flash.address(), 4);
    for _ in 0..1000 {
        flash.signal(Signal::SIGHUP);
    }
    place.configure(&config("b", 2));
    flash.reload();
    assert!(load.end() > 0);
    wait_until("the last configuration", || {
        get(flash.address(), "/").ends_with("of b\n")
    });
    assert_eq!(flash.count("flash_reloads_refused_total"), 0);
    wait_for_calm(&flash);
    // The main thread, two loops, a log, and helpers: two that stay, and those that have not been idle for long.
    wait_until("threads of one configuration", || flash.threads() <= 9);
    // Beside them: standard streams, what the main thread waits for, listening sockets and directories.
    wait_until("descriptors of one configuration", || {
        flash.descriptors() <= 32
    });
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
}

/// Ports that nobody has now.
fn two_addresses() -> [SocketAddr; 2] {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    taken.map(|socket| socket.local_addr().expect("an address"))
}

#[test]
fn who_waits_at_an_address_that_is_removed_is_answered() {
    let [first, second] = two_addresses();
    let at =
        |address: SocketAddr| config("a", 2).replace("127.0.0.1:0\"]", &format!("{address}\"]"));
    let place = Place::new(&at(first));
    let flash = Running::start(&place);
    // What comes while it stands still waits in the queues of the listening sockets.
    flash.signal(Signal::SIGSTOP);
    let mut waiting: Vec<TcpStream> = (0..200).map(|_| connect(first)).collect();
    for stream in &mut waiting {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("room");
    }
    place.configure(&at(second));
    flash.signal(Signal::SIGHUP);
    flash.signal(Signal::SIGCONT);
    for mut stream in waiting {
        // The connection ends, as nothing more is served there.
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("of a\n"), "{answer}");
    }
    wait_until("the old address is closed", || {
        TcpStream::connect(first).is_err()
    });
    assert!(get(second, "/").ends_with("of a\n"));
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let place = Place::new(&config("a", 2));
    let flash = Running::start(&place);
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address");
    let more = |text: &str| config("b", 2) + text;
    for (wrong, why) in [
        (more("rot = \"b\"\n"), "flash.toml:8:1: "),
        (
            more("error_pages = { 404 = \"/none\" }\n"),
            "the error page",
        ),
        (
            config("b", 2).replace("127.0.0.1:0\"]", &format!("127.0.0.1:0\", \"{taken}\"]")),
            "cannot listen at",
        ),
        (
            config("b", 2) + "[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"/none/such\"\n",
            "there is no directory /none/such",
        ),
        (
            "user = \"nobody\"\n".to_string() + &config("b", 2),
            "`user` cannot change while flash runs",
        ),
        (
            "sandbox = false\n".to_string() + &config("b", 2),
            "`sandbox` cannot change while flash runs",
        ),
    ] {
        place.configure(&wrong);
        flash.reload();
        let errors = flash.errors();
        let last = errors.lines().last().expect("a line");
        let begin = "flash: the configuration in force stays: ";
        assert!(last.starts_with(begin) && last.contains(why), "{last}");
        assert!(get(flash.address(), "/").ends_with("of a\n"));
    }
    drop(other);
    place.configure(&config("b", 2));
    flash.reload();
    assert!(get(flash.address(), "/").ends_with("of b\n"));
}

#[test]
fn the_log_is_opened_again_and_can_have_another_name() {
    let place = Place::new(&config("a", 1));
    let flash = Running::start(&place);
    let lines = |name: &str| {
        let text = fs::read_to_string(place.at(name)).unwrap_or_default();
        text.matches("GET /?").count()
    };
    get(flash.address(), "/?1");
    wait_until("the first line", || lines("logs/log") == 1);
    fs::rename(place.at("logs/log"), place.at("logs/old")).expect("it is there");
    flash.reload();
    get(flash.address(), "/?2");
    wait_until("a new file", || lines("logs/log") == 1);
    place.configure(&config("a", 1).replace("logs/log", "logs/other"));
    flash.reload();
    get(flash.address(), "/?3");
    wait_until("another name", || lines("logs/other") == 1);
    assert_eq!((lines("logs/old"), lines("logs/log")), (1, 1));
    if !flash.has_landlock() {
        return skipped("a log outside of the sandbox: this kernel has no Landlock");
    }
    place.configure(&config("a", 1).replace("logs/log", "b/log"));
    flash.reload();
    let errors = flash.errors();
    assert!(
        errors.contains("in its sandbox, flash makes logs only"),
        "{errors}"
    );
    assert!(!place.at("b/log").exists());
}

#[test]
fn who_is_not_root_any_more_opens_no_low_port() {
    let low = (600..1024).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut free = low.filter(|address| TcpListener::bind(address).is_ok());
    let (true, Some(first), Some(second)) = (flash::user::is_root(), free.next(), free.next())
    else {
        return skipped("ports below 1024: the test does not run as root");
    };
    let at = |address: SocketAddr, root: &str| {
        let text = config(root, 2).replace("127.0.0.1:0\"]", &format!("{address}\"]"));
        format!("user = \"nobody\"\n{text}").replace("log = \"logs/log\"\n", "")
    };
    let place = Place::new(&at(first, "a"));
    let flash = Running::start(&place);
    place.configure(&at(second, "b"));
    flash.reload();
    let errors = flash.errors();
    assert!(errors.contains("flash runs as nobody now"), "{errors}");
    assert!(get(first, "/").ends_with("of a\n"));
    // The port that is open stays usable, also by another number of loops.
    place.configure(&at(first, "b").replace("loops = 2", "loops = 4"));
    flash.reload();
    assert!(get(first, "/").ends_with("of b\n"), "{}", flash.errors());
}
