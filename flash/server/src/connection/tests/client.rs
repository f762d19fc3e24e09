// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of one connection, whose loop is the test itself.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use tempfile::TempDir;

use super::*;
use crate::sites;

const PATIENCE: Duration = Duration::from_secs(30);
/// For the kernel to say that something has become of a connection to this machine, in milliseconds.
const EVENT_MS: i64 = 100;

pub struct Client {
    pub place: TempDir,
    pub context: Context,
    pub connection: Connection,
    socket: UnixStream,
    epoll: OwnedFd,
    pub has_ended: bool,
}

impl Client {
    /// `server`: what the configuration says of it. Its root has a file.
    pub fn of(server: &str) -> Client {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().join("root");
        std::fs::create_dir(&root).expect("room");
        std::fs::write(root.join("index.html"), "the index").expect("room");
        std::fs::write(root.join("sorry.html"), "sorry").expect("room");
        let config = place.path().join("flash.toml");
        let text = format!("[[server]]\nlisten = [\"127.0.0.1:80\"]\nroot = \"root\"\n{server}\n");
        std::fs::write(&config, text).expect("room");
        let (_, hosts) = crate::config::read(&config).expect("a configuration");
        let listens = sites::listens(&hosts).expect("addresses");
        let opened = sites::open(&hosts, &listens, &sites::Before::default());
        let (hosts, _) = opened.expect("directories");
        let epoll = new_epoll();
        let of_links = epoll.try_clone().expect("a descriptor");
        let context = context(hosts, of_links);
        let (socket, ours) = UnixStream::pair().expect("sockets");
        for socket in [&socket, &ours] {
            socket.set_nonblocking(true).expect("a socket");
        }
        let peer = Peer {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            place: None,
        };
        let (transport, site) = (Transport::Plain, Site::Files(0));
        let connection = Connection::new(ours.into(), transport, peer, site, 1, &context);
        Client {
            place,
            context,
            connection,
            socket,
            epoll,
            has_ended: false,
        }
    }

    /// `location`: what the location `/` has.
    pub fn with(location: &str) -> Client {
        Client::of(&format!("[[server.location]]\npath = \"/\"\n{location}"))
    }

    /// Sends this, and returns what comes until the connection waits.
    pub fn send(&mut self, text: &str) -> String {
        self.socket.write_all(text.as_bytes()).expect("room");
        self.go_on();
        self.received()
    }

    /// Sends a request, and does no more than to open its upstream's connection.
    pub fn send_connecting(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).expect("room");
        self.connection.readable = true;
        let next = self.connection.drive(0, &mut self.context);
        assert_eq!(next, Next::Wait);
        assert!(self.take_events(EVENT_MS));
    }

    /// A request with HTTP/1.1, and its answer.
    pub fn ask(&mut self, method: &str, target: &str) -> String {
        self.send(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    pub fn received(&mut self) -> String {
        let mut all = Vec::new();
        let _ = self.socket.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Until the connection waits for its client or an upstream.
    pub fn go_on(&mut self) {
        let began = Instant::now();
        self.connection.readable = true;
        loop {
            assert!(began.elapsed() < PATIENCE, "it never waits");
            let next = self.connection.drive(0, &mut self.context);
            if next == Next::Close {
                self.connection.release(0, &mut self.context);
                self.has_ended = true;
                return;
            }
            let waits_for_upstream = matches!(self.connection.state, State::Relaying(_));
            let ms = match next == Next::Wait && waits_for_upstream {
                true => EVENT_MS,
                false => 0,
            };
            let is_changed = self.take_answers() | self.take_events(ms);
            let waits_for_helper = match &self.connection.state {
                State::Asked(_) => true,
                State::Sending(sending) => sending.waits,
                _ => false,
            };
            if next != Next::Again && !is_changed && !waits_for_helper {
                return;
            }
        }
    }

    fn take_answers(&mut self) -> bool {
        let inbox = Arc::clone(&self.context.inbox);
        let mut has_some = false;
        inbox.take(|ticket, result| {
            has_some = true;
            self.connection.answered(ticket, result, &mut self.context);
        });
        has_some
    }

    /// Of links to upstreams, for which it waits so long at most.
    pub fn take_events(&mut self, ms: i64) -> bool {
        let mut events = Vec::with_capacity(16);
        let most = Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        };
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&most));
        match waited {
            // By a signal to another test of this process.
            Err(Errno::INTR) => return self.take_events(ms),
            waited => waited.expect("a descriptor"),
        };
        for event in &events {
            let (name, flags) = (event.data.u64(), event.flags);
            self.context.links.event(name, flags);
        }
        !events.is_empty()
    }
}

/// The status of an answer.
pub fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("no answer: {answer:?}"))
}
