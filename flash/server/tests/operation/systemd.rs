// SPDX-License-Identifier: MIT OR Apache-2.0
//! These tests play systemd: they pass sockets on, and are told the server's state.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::running::{get, refusal, Place, Running, FLASH, PATIENCE};

const CONFIG: &str = "loops = 2\nmetrics = \"systemd:numbers\"\n\
                      [[server]]\nlisten = [\"systemd:web\"]\nroot = \"a\"\n";

/// `flash run` as systemd starts it, with sockets from descriptor 3 on.
fn command(place: &Place, sockets: Vec<(&str, OwnedFd)>) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" run \"$1\"", FLASH])
        .arg(place.at("flash.toml"))
        .env("LISTEN_FDS", sockets.len().to_string());
    let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
    command.env("LISTEN_FDNAMES", names.join(":"));
    // Out of the way of the numbers that they get.
    let high = |(_, socket)| rustix::io::fcntl_dupfd_cloexec(&socket, 100).expect("a descriptor");
    let copies: Vec<OwnedFd> = sockets.into_iter().map(high).collect();
    let pass = move || {
        for (number, copy) in (3..).zip(&copies) {
            // SAFETY: both are numbers of descriptors; what the second one was is not used in this process any more.
            if unsafe { libc::dup2(copy.as_raw_fd(), number) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it only makes system calls, so it may run between fork and exec.
    unsafe { command.pre_exec(pass) };
    command
}

struct Notifications(UnixDatagram);

impl Notifications {
    fn of(place: &Place, command: &mut Command) -> Notifications {
        let path = place.at("notify");
        let socket = UnixDatagram::bind(&path).expect("room");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        command.env("NOTIFY_SOCKET", path);
        Notifications(socket)
    }

    #[track_caller]
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a notification");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

#[test]
fn sockets_come_from_systemd_and_the_state_goes_to_it() {
    let place = Place::new(CONFIG);
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = web.local_addr().expect("an address");
    let path = place.at("web.sock");
    let unix = UnixListener::bind(&path).expect("room");
    let numbers = TcpListener::bind("127.0.0.1:0").expect("a port");
    // Whoever comes before the server is there waits for it.
    let mut early = TcpStream::connect(address).expect("it listens");
    early.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("room");
    let sockets = vec![
        ("web", OwnedFd::from(web)),
        ("numbers", numbers.into()),
        ("web", unix.into()),
        (
            "spare",
            TcpListener::bind("127.0.0.1:0").expect("a port").into(),
        ),
    ];
    let mut command = command(&place, sockets);
    let state = Notifications::of(&place, &mut command);
    let flash = Running::start_as(command);
    let ready = state.next();
    let serving = format!("READY=1\nSTATUS=serving at http://{address}/, unix:");
    assert!(ready.starts_with(&serving), "{ready}");
    let mut answer = String::new();
    early.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("of a\n"), "{answer}");
    let mut client = UnixStream::connect(&path).expect("it listens");
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("room");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("of a\n"), "{answer}");

    for (config, status) in [
        (CONFIG.replace("\"a\"", "\"b\""), "STATUS=serving at"),
        (
            CONFIG.replace("root", "rot"),
            "STATUS=the configuration in force stays: ",
        ),
        (
            CONFIG.replace("systemd:web", "systemd:other"),
            "STATUS=the configuration in force stays: cannot listen at systemd:other: ",
        ),
    ] {
        place.configure(&config);
        flash.signal(Signal::SIGHUP);
        let reloading = state.next();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let time = time.and_then(|time| time.trim().parse::<u64>().ok());
        assert!(time.is_some_and(|time| time > 0), "{reloading}");
        let ready = state.next();
        let rest = ready.strip_prefix("READY=1\n");
        assert!(rest.is_some_and(|rest| rest.starts_with(status)), "{ready}");
    }
    assert!(get(address, "/").ends_with("of b\n"));
    assert_eq!(flash.count("flash_reloads_refused_total"), 2);
    let (status, errors) = flash.end();
    assert!(status.success(), "{errors}");
    assert!(
        errors.contains("the socket spare, which no address names"),
        "{errors}"
    );
    assert!(state.next().starts_with("STOPPING=1\n"));
}

#[test]
fn sockets_that_cannot_be_used_are_named() {
    let place = Place::new(CONFIG);
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a port"));
    let error = refusal(command(&place, vec![("http", tcp()), ("numbers", tcp())]));
    let names = "systemd has passed the names http, numbers; set FileDescriptorName=web";
    assert!(error.contains(names), "{error}");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let error = refusal(command(&place, vec![("web", udp.into())]));
    assert!(
        error.contains("`web`, which is no listening socket"),
        "{error}"
    );
    let error = refusal(crate::running::command(&place));
    assert!(error.contains("start flash by a socket unit"), "{error}");
}
